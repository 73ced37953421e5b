"""A round, from requests to its commit.

The writes, in order, and what a crash between them leaves:

1. rows of ``ledgers`` for publish commits numbered in this round: numbering has only one outcome, so whoever starts next takes them over;
2. one commit to ``cursor_ledger``: the round. Before it nothing has happened; after it everything has;
3. letters of entries the round declared dead and of messages it put off, as transactions of the round's number (see letters): missing ones are written at the
   next start;
4. the streaming checkpoint, which only spares a look at requests that the round's row already names as consumed.

Both tables are appended to as "this version or none": a broker that was taken over meets a version it did not write and stops (:class:`BrokerFenced`).
"""
import logging
from collections.abc import Callable
from typing import NamedTuple

from pulsar_spark.broker.absorb import RoundRows, absorb, consumer_row, cursor_row
from pulsar_spark.broker.bundle import Bundle, TopicState
from pulsar_spark.broker.drafts import Request, RoundDraft
from pulsar_spark.broker.gather import Work, gather_work
from pulsar_spark.broker.letters import write_letters
from pulsar_spark.broker.maintenance import maintain
from pulsar_spark.broker.requests import Intake
from pulsar_spark.broker.unacked import hold_back
from pulsar_spark.protocol.cursor import Range
from pulsar_spark.protocol.unacked_limit import BrokerLimit
from pulsar_spark.schemas import LEDGERS
from pulsar_spark.storage.cursor_ledger import read_round, rows_of_round
from pulsar_spark.storage.tables import AppendTable

SNAPSHOT_EVERY = 50
RANGES_A_SNAPSHOT = 100_000
"""A snapshot every so many rounds; of a state of several times so many ranges as many times rarer, so that its cost does not grow with the state."""

log = logging.getLogger(__name__)


class RoundResult(NamedTuple):
    """What a round did; ``is_committed`` is False where there was nothing to do."""

    is_committed: bool
    delivered_messages: int = 0


class Rounds:
    """Runs rounds on a bundle. *plan* turns work into new ranges; *now* gives microseconds since 1970; 0 is no limit."""

    def __init__(self, bundle: Bundle, plan: Callable[[Work], list[list[Range]]], now: Callable[[], int], broker_id: str, *,
                 max_unacked_messages_per_broker: int = 0):
        self.limit = BrokerLimit(max_unacked_messages_per_broker)
        self.bundle, self.plan, self.now, self.broker_id = bundle, plan, now, broker_id
        self.cursor_ledger = AppendTable(bundle.layout.broker_table("cursor_ledger"))
        self.ledgers = AppendTable(bundle.layout.broker_table("ledgers"))
        self._waiting: list[Request] = []

    def take_over(self) -> None:
        """Commit a round that says the bundle is this broker's from now on; first write what a crash may have left unwritten."""
        if self.bundle.round:
            letters = read_round(self.bundle.layout.broker_table("cursor_ledger"), self.bundle.version, kind="letter").to_pylist()
            self._waiting += write_letters(self.bundle, self.bundle.round, self.bundle.clock, letters)
        self.bundle.epoch += 1
        for cursor in self.bundle.cursors.values():
            cursor.last_active = self._tick() if cursor.last_active is None else cursor.last_active
            for consumer in cursor.consumers.values():
                self.bundle.leases[consumer.client_id] = self._tick() + self.bundle.lease_ms[consumer.client_id] * 1000
        hold_back(self.bundle, self.limit)
        self._commit(RoundDraft(self.bundle.round + 1, self._tick()), RoundRows(self.bundle.outlived), is_snapshot=True)

    def run(self, requests: list[Request], requests_version: int) -> RoundResult:
        """One round over *requests*, the last of which was committed at *requests_version*, and over what has come due or been published."""
        bundle = self.bundle
        draft = RoundDraft(bundle.round + 1, self._tick())
        intake = Intake(bundle, draft)
        intake.members.drop_topics(bundle.scan())
        moved, ledger_rows = bundle.number_new(request.topic for request in [*self._waiting, *requests])
        waiting, self._waiting = self._waiting, []
        for request in [*waiting, *requests]:
            intake.take(request)
        intake.members.end_leases()
        intake.moves.pass_trimmed(moved)
        maintain(bundle, draft)
        for state in moved:
            draft.facts += _topic_rows(state) + bundle.say_stopped(state)
        work = gather_work(bundle, draft)
        delivered_before = sum(cursor.msg_out_counter for cursor in bundle.cursors.values())
        rows = absorb(bundle, draft, work, self.plan(work) if work.rows else [], self.limit)
        bundle.requests_version = max(bundle.requests_version, requests_version)
        if not rows.facts and not rows.pages:
            return RoundResult(False)
        if ledger_rows:
            bundle.ledgers_version = self.ledgers.append_fenced(LEDGERS.rows(ledger_rows), bundle.ledgers_version)
        letters = [fact for fact in rows.facts if fact["kind"] == "letter"]
        self._commit(draft, rows, is_snapshot=draft.number % SNAPSHOT_EVERY == 0 and draft.number % self._snapshot_every() == 0)
        self._waiting += write_letters(bundle, draft.number, draft.now, letters)
        return RoundResult(True, sum(cursor.msg_out_counter for cursor in bundle.cursors.values()) - delivered_before)

    def _commit(self, draft: RoundDraft, rows: RoundRows, *, is_snapshot: bool) -> None:
        bundle = self.bundle
        if is_snapshot:
            rows = _everything(bundle, rows)
        rows.facts.append(dict(kind="round", round_time=draft.now, requests_version=bundle.requests_version, epoch=bundle.epoch,
                               broker_id=self.broker_id, is_snapshot=is_snapshot))
        bundle.version = self.cursor_ledger.append_fenced(rows_of_round(draft.number, rows.facts, rows.pages), bundle.version)
        bundle.round = draft.number

    def _snapshot_every(self) -> int:
        ranges = sum(len(page.ranges) for cursor in self.bundle.cursors.values() for page in cursor.pages)
        return SNAPSHOT_EVERY * max(1, ranges // RANGES_A_SNAPSHOT)

    def _tick(self) -> int:
        """The clock, which never runs backwards, not even over a restart."""
        self.bundle.clock = max(self.bundle.clock, self.now())
        return self.bundle.clock


def _topic_rows(state: TopicState) -> list[dict]:
    return [dict(kind="topic", topic=str(state.topic.name), topic_id=state.topic.topic_id, partition=partition, ledger_id=state.version,
                 end_position=state.end_position(partition), first=state.first_position(partition)) for partition in state.topic.partition_indexes]


def _everything(bundle: Bundle, rows: RoundRows) -> RoundRows:
    """All latest rows: replies and removals of this round, and the state of everything."""
    kept = [fact for fact in rows.facts if fact["kind"] in ("reply", "letter") or fact.get("is_removed")]
    whole = RoundRows(kept)
    whole.facts += [bundle.policy_row(owner, name, value) for (owner, name), value in bundle.policies.items()]
    for state in bundle.topics.values():
        whole.facts += _topic_rows(state)
    for cursor in bundle.cursors.values():
        whole.facts.append(cursor_row(cursor))
        whole.facts += [consumer_row(bundle, cursor, consumer) for consumer in cursor.consumers.values()]
        whole.add_pages(cursor, [page for page in cursor.pages if page.ranges], [])
    return whole
