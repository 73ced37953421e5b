"""A round, from requests to its commit.

Its writes in order, and what a crash between them leaves:

1. Rows of ``ledgers`` for new publish commits. Numbering has one outcome, so the next start takes them over.
2. One commit to ``cursor_ledger``: the round, whole or not at all.
3. Projections (see letters.projections): letters. The next start writes missing ones; failing ones wait (see
   waiting_letters).
4. The streaming checkpoint, which is never read.

The delay index learns of new entries after 1, and of unneeded ones after 2. It commits in the background (see
delay_commits), and reads what a crash lost again. Tables are appended to at one exact version, so a replaced broker
stops (:class:`BrokerFenced`).
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.broker.applying.absorb import RoundRows, absorb
from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import TOLERANCE, BundleClock, Instant
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.bundle.other_bundles import ask_others
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.chunks.chunk_walk import expire_incomplete, take_numbered
from pulsar_spark.broker.committing.facts import housekeeping_row, round_row, topic_rows
from pulsar_spark.broker.committing.round_rows import rows_of_round
from pulsar_spark.broker.committing.snapshots import everything, is_snapshot_due
from pulsar_spark.broker.cursors.unacked import hold_back
from pulsar_spark.broker.delays.due_moves import mend_numbers
from pulsar_spark.broker.gathering.candidates import has_work, let_all_rest, may_catch_up, next_dues
from pulsar_spark.broker.gathering.gather import gather_work
from pulsar_spark.broker.letters.projections import write_missing_projections, write_projections
from pulsar_spark.broker.planning.work import Outcome, Work
from pulsar_spark.broker.requests.drafts import RoundDraft, RoundResult
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.requests.requests import Intake
from pulsar_spark.broker.requests.set_aside import set_aside
from pulsar_spark.broker.round.isolation import isolated, of_cursor, plan_isolated
from pulsar_spark.broker.round.recovery import Recovery
from pulsar_spark.broker.upkeep.maintenance import maintain
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.storage.cursor_ledger.cursor_ledger import concerned
from pulsar_spark.storage.cursor_ledger.set_aside import SetAside
from pulsar_spark.storage.delta.python_rows import uncollected
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.table_specs import LEDGERS

REQUESTS_UNSAID = 1000
"""Commits of requests without effect, such as signs of life, after which a round records them as consumed anyway, so
that they can be deleted."""

SENT_AGAIN = 60_000_000
"""Microseconds after which another bundle is asked again for the same thing."""

log = logging.getLogger(__name__)


class Rounds:
    """Runs rounds on a bundle.

    *plan* turns work into outcomes. *now* returns microseconds since 1970, *steady* those of a clock that cannot be
    set. A limit of 0 is none.
    """

    def __init__(
        self,
        bundle: Bundle,
        plan: Callable[[Work], list[Outcome]],
        now: Callable[[], int],
        broker_id: str,
        *,
        max_unacked_messages_per_broker: int = 0,
        steady: Callable[[], int] | None = None,
    ):
        self.limit = max_unacked_messages_per_broker
        self.bundle, self.plan, self.broker_id = bundle, plan, broker_id
        self.clock = BundleClock(now, bundle.now, steady)
        self.cursor_ledger = AppendTable(bundle.layout.broker_table("cursor_ledger"))
        self.ledgers = AppendTable(bundle.layout.broker_table("ledgers"))
        self._recovery = Recovery(self)
        self._waiting: list[Request] = []
        self._sent_to_others: dict[tuple, int] = {}
        self._housekept: deque[tuple[str, str, int]] = deque()

    @uncollected()
    def take_over(self) -> None:
        """Write what a crash left unwritten, then claim the bundle by a round."""
        self.write_missing()
        self.begin()

    def begin(self, facts: Sequence[dict] = ()) -> None:
        """Commit a snapshot round, with *facts* about what no longer exists."""
        self.bundle.epoch += 1
        self.grant_leases({})
        hold_back(self.bundle, self.limit)
        draft = self._draft()
        self._append(
            draft,
            self._rows_of(
                draft,
                RoundRows([*self.bundle.outlived, *self.bundle.waiting_letters.facts(), *facts], draft.number),
                self.bundle.requests_version,
                is_snapshot=True,
            ),
        )

    @uncollected()
    def run(self, requests: list[Request], requests_version: int, unreadable: Sequence[SetAside] = ()) -> RoundResult:
        """Run one round over *requests*, up to *requests_version*, and over due and published entries.

        *unreadable* requests are set aside, and so is what makes the round fail (see recovery). An error of the
        machine, such as a full disk, is raised once memory agrees with the tables; call again with the requests after
        ``bundle.requests_version``.
        """
        return self._recovery.run(requests, requests_version, unreadable)

    def note_housekeeping(self, table: str, what: str, count: int) -> None:
        """Record housekeeping in the next round; from any thread."""
        self._housekept.append((table, what, count))

    @property
    def is_waiting(self) -> bool:
        """Does a failed round wait for another try?"""
        return self._recovery.is_waiting

    def is_due(self) -> bool:
        """Is there work without a request? Also if a client left, or the machine's clock was set back."""
        now = self.clock.look()
        if self.bundle.hear(now.own):
            return True
        let_all_rest(self.bundle, now)
        own, wall = next_dues(self.bundle, self.bundle.now)
        is_due = (own is not None and own <= now.own) or (wall is not None and wall <= now.wall)
        return is_due or self._is_set_back(now) or may_catch_up(self.bundle)

    @property
    def has_waiting_requests(self) -> bool:
        return bool(self.bundle.waiting_requests)

    def attempt(
        self, requests: list[Request], requests_version: int, broken: Mapping[str, SetAside], *, is_trial: bool = False
    ) -> RoundResult:
        """Run the round without *broken*, which is set aside. A trial does not commit."""
        bundle = self.bundle
        was_set_back = self._is_set_back(self.clock.look())
        draft = self._draft()
        draft.facts += bundle.outlived
        set_aside(bundle, draft, broken)
        mend_numbers(bundle, draft)
        intake = Intake(bundle, draft, broken)
        intake.members.drop_topics(bundle.scan())
        moved, ledger_rows = bundle.number_new(
            (request.topic for request in [*self._waiting, *bundle.waiting_requests, *requests]),
            partial(bundle.delayed_after, draft.wall),
        )
        self._wake(moved, was_set_back=was_set_back)
        take_numbered(bundle, draft)
        waiting, self._waiting = self._waiting, []
        intake.take_all([*waiting, *bundle.waiting_requests, *requests])
        draft.facts += bundle.keep_waiting(intake.put_off)
        if not is_trial:
            ask_others(bundle.layout, intake.sent_on)
        intake.members.end_leases(bundle.hear(draft.now))
        intake.moves.pass_trimmed(moved)
        maintain(bundle, draft)
        expire_incomplete(bundle, draft)
        bundle.waiting_letters.try_due(draft.now)
        draft.facts += bundle.waiting_letters.facts()
        for state in moved:
            draft.facts += topic_rows(state) + bundle.stopped_rows(state)
        work = gather_work(bundle, draft)
        rows = absorb(bundle, draft, work, plan_isolated(self.plan, work) if work else [], self.limit)
        bundle.cursors.wake(draft.cursors)
        rows.facts += bundle.promotion_facts()
        consumed = max(bundle.requests_version, requests_version)
        is_far = consumed >= bundle.requests_committed + REQUESTS_UNSAID
        if not rows.facts and not rows.pages and not was_set_back and not is_far:
            bundle.requests_version = consumed
            return RoundResult(False, refusals=tuple(draft.refusals))
        is_snapshot = is_snapshot_due(bundle, draft.number)
        housekept = list(self._housekept)
        rows.facts += [housekeeping_row(*done, draft.wall) for done in housekept]
        table = self._rows_of(draft, rows, consumed, is_snapshot=is_snapshot)
        ledgers = LEDGERS.rows(ledger_rows)
        if is_trial:
            return RoundResult(False)
        self._commit(draft, table, ledgers, moved)
        bundle.requests_version = bundle.requests_committed = consumed
        for _ in housekept:
            self._housekept.popleft()
        return self._finish(draft, rows, moved, is_snapshot=is_snapshot)

    def _wake(self, moved: Sequence[TopicState], *, was_set_back: bool) -> None:
        """Wake due cursors, and those with new entries in *moved* topics."""
        bundle = self.bundle
        bundle.cursors.wake_due(bundle.now)
        if was_set_back:
            bundle.cursors.wake_all()
        for state in moved:
            bundle.cursors.wake_for_entries(state.topic.topic_id)
            for cursor in bundle.cursors_of(state.topic.topic_id) if state.has_chunks else ():
                with isolated(of_cursor(cursor)):
                    bundle.attach_chunks(cursor)

    def _commit(self, draft: RoundDraft, table: pa.Table, ledgers: pa.Table, moved: Sequence[TopicState]) -> None:
        bundle = self.bundle
        if ledgers.num_rows:
            bundle.ledgers_version = self.ledgers.append_fenced(
                ledgers, bundle.ledgers_version, pc.unique(ledgers["topic_id"]).to_pylist()
            )
            bundle.index_new(moved)
        self._append(draft, table)

    def _finish(
        self, draft: RoundDraft, rows: RoundRows, moved: Sequence[TopicState], *, is_snapshot: bool
    ) -> RoundResult:
        """After the commit: forget what is not needed, write letters, and return the result."""
        bundle = self.bundle
        bundle.drop_promoted()
        bundle.forget_chunks(
            {str(state.topic.name) for state in moved} | {changes.cursor.topic for changes in draft.cursors.values()}
        )
        if is_snapshot:
            bundle.forget_runs()
        self._waiting += self._of_ours(write_projections(bundle, draft.number, bundle.now, rows.facts))
        entries = sum(fact["last"] - fact["first"] + 1 for fact in rows.facts if fact["kind"] == "letter")
        expired = sum(changes.expired for changes in draft.cursors.values())
        return RoundResult(True, rows.delivered, rows.acknowledged - expired, entries, expired, tuple(draft.refusals))

    def has_work(self) -> bool:
        """Is there work left that needs no request?"""
        now = self.bundle.now
        return bool(self._waiting) or has_work(self.bundle, RoundDraft(self.bundle.round + 1, now.own, now.wall))

    def reload(self, leases: Mapping[str, int]) -> None:
        """Read the bundle from its tables, but keep *leases*. :class:`BrokerFenced` if another broker committed."""
        bundle = load_bundle(self.bundle.layout, self.bundle.delay_index)
        if bundle.version != self.bundle.version and bundle.broker_id != self.broker_id:
            raise BrokerFenced(
                f"{str(bundle.layout.root)!r}: the latest round is of {bundle.broker_id}: "
                "another broker serves this bundle"
            )
        bundle.liveness = self.bundle.liveness  # it knows the clients' signs of life since
        self.bundle = bundle
        self.grant_leases(leases)
        self.write_missing()

    def grant_leases(self, leases: Mapping[str, int]) -> None:
        """Give each connected client a whole lease, or the rest in *leases*."""
        bundle, now = self.bundle, self.clock.look()
        for cursor in bundle.cursors.values():
            cursor.last_active = now.own if cursor.last_active is None else cursor.last_active
            for consumer in cursor.consumers.values():
                if consumer.client_id in leases:
                    bundle.leases[consumer.client_id] = leases[consumer.client_id]
                else:
                    bundle.renew_lease(consumer.client_id, now.own)

    def write_missing(self) -> None:
        """Write missing projections of the latest round; no round begins before they are written or wait."""
        self._waiting = self._of_ours(write_missing_projections(self.bundle))

    def take_waiting(self) -> list[Request]:
        """Remove and return the next round's own requests."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def _of_ours(self, requests: list[Request]) -> list[Request]:
        """This bundle's requests; others are sent to their bundles."""
        others, now = [request for request in requests if not self.bundle.served.holds(request.topic)], self.bundle.now
        self._sent_to_others = {
            what: at for what, at in self._sent_to_others.items() if at <= now.own < at + SENT_AGAIN
        }
        fresh = [each for each in others if each[4:7] not in self._sent_to_others]
        self._sent_to_others.update((each[4:7], now.own) for each in fresh)
        ask_others(self.bundle.layout, fresh)
        return [request for request in requests if request not in others]

    def _draft(self) -> RoundDraft:
        self.bundle.now = self.clock.look()
        return RoundDraft(self.bundle.round + 1, self.bundle.now.own, self.bundle.now.wall)

    def _is_set_back(self, now: Instant) -> bool:
        return now.wall + TOLERANCE < self.bundle.now.wall

    def _rows_of(self, draft: RoundDraft, rows: RoundRows, requests_version: int, *, is_snapshot: bool) -> pa.Table:
        bundle = self.bundle
        if is_snapshot:
            rows = everything(bundle, rows)
        rows.facts.append(
            round_row(
                wall=draft.wall,
                now=draft.now,
                requests_version=requests_version,
                epoch=bundle.epoch,
                broker_id=self.broker_id,
                is_snapshot=is_snapshot,
                served=bundle.served,
            )
        )
        return rows_of_round(draft.number, rows.facts, rows.pages)

    def _append(self, draft: RoundDraft, table: pa.Table) -> None:
        self.bundle.version = self.cursor_ledger.append_fenced(table, self.bundle.version, concerned(table))
        self.bundle.round = draft.number
        self.bundle.outlived, self.bundle.has_lost_topics = [], False
