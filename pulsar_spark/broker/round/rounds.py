"""What lives longer than a round: the bundle, the clock, the planner, and requests for the next round."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import BundleClock, is_set_back
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.bundle.other_bundles import SentRequests
from pulsar_spark.broker.committing.commit import RoundTables, commit_round, round_table
from pulsar_spark.broker.committing.round_rows import RoundRows
from pulsar_spark.broker.cursors.unacked import limit_unacked
from pulsar_spark.broker.gathering.candidates import has_work, let_all_rest, next_dues
from pulsar_spark.broker.letters.projections import write_missing_projections
from pulsar_spark.broker.planning.work import Outcome, Work
from pulsar_spark.broker.requests.drafts import RoundDraft, RoundResult
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.round.pipeline import Agenda, run_round
from pulsar_spark.broker.round.recovery import Recovery
from pulsar_spark.broker.round.samples import Samples
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.storage.cursor_ledger.set_aside import SetAside
from pulsar_spark.storage.delta.python_rows import uncollected


class Rounds:
    """Runs rounds on a bundle. *plan* turns work into outcomes. *now* and *steady*, a clock that cannot be set, return
    microseconds."""

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
        self.bundle, self.plan = bundle, plan
        self.clock = BundleClock(now, bundle.now, steady)
        self.tables = RoundTables.of(bundle.layout, broker_id)
        self._recovery = Recovery(self)
        self._own: list[Request] = []
        """Requests of the latest round's letters."""
        self._sent = SentRequests()
        self._housekept: deque[tuple[str, str, int]] = deque()
        self.samples: Samples | None = None
        """What hears of rounds, to sample activity."""

    @uncollected()
    def take_over(self) -> None:
        """Write what a crash left unwritten, then claim the bundle by a round."""
        self.write_missing()
        self.begin()

    def begin(self, facts: Sequence[dict] = ()) -> None:
        """Commit a snapshot round, with *facts* about what no longer exists."""
        bundle = self.bundle
        bundle.epoch += 1
        self.grant_leases({})
        limit_unacked(bundle, self.limit)
        bundle.now = self.clock.look()
        draft = RoundDraft(bundle.round + 1, *bundle.now)
        rows = RoundRows([*bundle.outlived, *bundle.waiting_letters.facts(), *facts], draft.number)
        table = round_table(
            bundle,
            draft,
            rows,
            requests_version=bundle.requests_version,
            broker_id=self.tables.broker_id,
            is_snapshot=True,
        )
        commit_round(self.tables, bundle, draft.number, table)

    @uncollected()
    def run(self, requests: list[Request], requests_version: int, unreadable: Sequence[SetAside] = ()) -> RoundResult:
        """Run one round over *requests*, up to *requests_version*, and over due and published entries. *unreadable*
        requests are set aside. An error of the machine, such as a full disk, is raised once memory agrees with the
        tables; call again with the requests after ``bundle.requests_version``."""
        return self._recovery.run(requests, requests_version, unreadable)

    def attempt(
        self,
        requests: Sequence[Request],
        later: Sequence[Request],
        requests_version: int,
        broken: Mapping[str, SetAside],
    ) -> RoundResult:
        """Run the round once (see :class:`~pulsar_spark.broker.round.pipeline.Agenda`)."""
        own, self._own, housekept = self._own, [], list(self._housekept)
        agenda = Agenda(self.clock.look(), [*own, *requests], later, requests_version, broken, housekept)
        if self.samples is not None:
            self.samples.before_round(self.bundle, agenda.now.wall)
        result, of_letters = run_round(self.bundle, agenda, self.plan, self.tables, self.limit)
        if result.is_committed:
            for _ in housekept:
                self._housekept.popleft()
            if self.samples is not None:
                self.samples.after_round(self.bundle, self.bundle.now.wall)
        self._own = self._of_ours(of_letters)
        return result

    def note_housekeeping(self, table: str, what: str, count: int) -> None:
        """Record housekeeping in the next round; from any thread."""
        self._housekept.append((table, what, count))

    @property
    def is_waiting(self) -> bool:
        return self._recovery.is_waiting

    @property
    def is_reload_due(self) -> bool:
        return self._recovery.is_reload_due

    @property
    def has_waiting_requests(self) -> bool:
        return bool(self.bundle.waiting_requests)

    def is_due(self) -> bool:
        """Is there work without a request? Also if a client left, or the machine's clock was set back."""
        now = self.clock.look()
        if self.bundle.hear(now.own):
            return True
        let_all_rest(self.bundle, now)
        own, wall = next_dues(self.bundle, self.bundle.now)
        is_due = (own is not None and own <= now.own) or (wall is not None and wall <= now.wall)
        return is_due or is_set_back(now, self.bundle.now) or self.has_waiting_requests

    def has_work(self) -> bool:
        """Is there work left that needs no request?"""
        return bool(self._own) or has_work(self.bundle, RoundDraft(self.bundle.round + 1, *self.bundle.now))

    def reload(self, leases: Mapping[str, int]) -> None:
        """Read the bundle from its tables, but keep *leases*. :class:`BrokerFenced` if another broker committed."""
        bundle = load_bundle(self.bundle.layout, self.bundle.delay_index)
        if bundle.version != self.bundle.version and bundle.broker_id != self.tables.broker_id:
            raise BrokerFenced(
                f"{str(bundle.layout.root)!r}: the latest round is of {bundle.broker_id}: "
                "another broker serves this bundle"
            )
        bundle.liveness = self.bundle.liveness  # it knows the clients' signs of life since
        self.bundle = bundle
        bundle.changed.note(bundle.cursors, bundle.topics)
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
        self._own = self._of_ours(write_missing_projections(self.bundle))

    def take_own_requests(self) -> list[Request]:
        own, self._own = self._own, []
        return own

    def _of_ours(self, requests: list[Request]) -> list[Request]:
        return self._sent.send_others(self.bundle.layout, self.bundle.served, requests, self.bundle.now.own)
