"""A bundle in memory: topics and their ledgers, cursors, policies, leases; and how a broker that starts gets them back.

Everything here is a function of committed tables, so losing it costs a reload and nothing else.
"""

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pulsar_spark.broker.clock import Instant, to_micros
from pulsar_spark.broker.liveness import Liveness
from pulsar_spark.broker.numbering import may_go_on, number_topic
from pulsar_spark.broker.state import Consumer, Cursor
from pulsar_spark.broker.waiting_letters import WaitingLetters
from pulsar_spark.errors import CorruptState, InvalidTopicName, TopicNotFound
from pulsar_spark.protocol.policies import POLICIES, TOPIC_STOPPED, policy_number
from pulsar_spark.protocol.topic_name import TopicName, parse_topic_name
from pulsar_spark.protocol.unacked_limit import BLOCKED_BY_BROKER
from pulsar_spark.storage.cursor_ledger import CursorKey, LatestRows, read_latest, uncollected
from pulsar_spark.storage.discovery import TopicFolders
from pulsar_spark.storage.faults import is_fault_of_disk
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import PartitionLedgers, read_ledgers, runs_of
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.set_aside import SUBSCRIPTION, TOPIC, SetAside
from pulsar_spark.storage.topics import Topic, read_topic

log = logging.getLogger(__name__)
DEFAULT_LEASE_MS = 30_000
MAX_LEASE_MS = 24 * 60 * 60 * 1000
"""A day, the most a client can ask for."""


@dataclass
class TopicState:
    """A topic and how far it is numbered. ``life`` tells its table from another in its place, ``trimmed`` holds the
    first position left of partitions that lost some, ``error`` says why numbering stopped, if it did, and
    ``stopped_at`` at what, ``checked_at`` when maintenance looked at it last."""

    topic: Topic
    log: TableLog
    life: tuple[int, int] | None
    version: int = 0
    partitions: dict[int, PartitionLedgers] = field(default_factory=dict)
    publish_ids: set[str] = field(default_factory=set)
    trimmed: dict[int, int] = field(default_factory=dict)
    error: str | None = None
    stopped_at: tuple | None = None
    checked_at: int | None = None

    def ledgers(self, partition: int) -> PartitionLedgers:
        return self.partitions.setdefault(partition, PartitionLedgers())

    @property
    def last_ledger_id(self) -> int:
        """The last publish commit that is numbered."""
        return max((ledgers.runs[-1].ledger_id for ledgers in self.partitions.values() if ledgers.runs), default=0)

    @property
    def has_news(self) -> bool:
        """Has the log moved behind what is numbered, and may it be followed? Microseconds."""
        return self.log.has(self.version + 1) and (self.error is None or may_go_on(self))

    def first_position(self, partition: int) -> int:
        """The first position that was not trimmed."""
        return self.trimmed.get(partition, 0)

    def end_position(self, partition: int) -> int:
        return self.ledgers(partition).end_position


class Bundle:
    """State of all topics and subscriptions of a bundle, after its latest round."""

    def __init__(self, layout: Layout):
        self.layout = layout
        self.topics: dict[str, TopicState] = {}
        self.cursors: dict[CursorKey, Cursor] = {}
        self.policies: dict[tuple[str, str], str] = {}
        self.outlived: list[dict] = []
        """Rows that take back what was said of topics that went, or were made anew, while no broker ran."""
        self.stopped: list[TopicState] = []
        """Topics whose error was found since the last round, other than by numbering."""
        self.leases: dict[str, int] = {}
        self.lease_ms: dict[str, int] = {}
        self.liveness = Liveness(layout)
        self.round = self.version = 0
        self.epoch = 0
        self.broker_id: str | None = None
        """Who committed the latest round when the bundle was loaded."""
        self.requests_version = 0
        self.ledgers_version = 0
        self.now = Instant(0, 0)
        """The moment of the latest round."""
        self.set_aside: dict[str, SetAside] = {}
        self.has_lost_topics = False
        """Were topics gone when the bundle was loaded that its latest rows still name?"""
        self.maintenance_due: int | None = None
        self.waiting_letters = WaitingLetters()
        self._folders = TopicFolders(layout)
        self._passed_over: dict[str, str] = {}

    # What is known of a name

    def topic_id(self, name: str) -> str | None:
        """The id of a topic that is known; None of another, and of a namespace."""
        return self.topics[name].topic.topic_id if name in self.topics else None

    def policy_row(self, owner: str, name: str, value: str | None) -> dict:
        """The row that says a policy, or a fact among the policies; None takes it back."""
        return dict(
            kind="policy",
            topic=owner,
            topic_id=self.topic_id(owner),
            properties=[(name, value)],
            is_removed=value is None,
        )

    def set_policy(self, owner: str, name: str, value: str | None) -> dict:
        """Set it, or take it back; its row."""
        self.policies.pop((owner, name), None)
        if value is not None:
            self.policies[owner, name] = value
        return self.policy_row(owner, name, value)

    def say_stopped(self, state: TopicState) -> list[dict]:
        """The row that says whether a topic is stopped, and why; none where that was said before."""
        name = str(state.topic.name)
        if self.policies.get((name, TOPIC_STOPPED)) == state.error:
            return []
        return [self.set_policy(name, TOPIC_STOPPED, state.error)]

    def topic(self, name: str) -> TopicState:
        """The topic of that name, looked for on disk if it is new; :class:`TopicNotFound` when there is none."""
        if name not in self.topics:
            parsed = parse_topic_name(name)
            name = str(parsed)
            if name not in self.topics:
                self._add_topic(parsed)
        return self.topics[name]

    def topic_by_id(self, topic_id: str) -> TopicState | None:
        return next((state for state in self.topics.values() if state.topic.topic_id == topic_id), None)

    def policy(self, topic: str, name: str) -> int:
        """A number's policy: the topic's own, else its namespace's, else the default of :data:`POLICIES`."""
        return policy_number(name, self.policy_text(topic, name))

    def policy_text(self, topic: str, name: str) -> str:
        """Likewise, as it was set."""
        for owner in (topic, parse_topic_name(topic).namespace_name):
            if (owner, name) in self.policies:
                return self.policies[owner, name]
        return str(POLICIES[name])

    def why_passed_over(self, name: str) -> str | None:
        """Why a folder that lies where a topic would is not served; None where there is none."""
        return self._passed_over.get(name)

    def cursors_of(self, topic_id: str) -> list[Cursor]:
        return [cursor for key, cursor in self.cursors.items() if key.topic_id == topic_id]

    def batch_size(self, cursor: Cursor, position: int) -> int:
        """Messages of an entry that is numbered; 1 where nothing is known of it any more."""
        run = next(self.topics[cursor.topic].ledgers(cursor.key.partition).overlapping(position, position), None)
        return run.batch_size if run else 1

    # What is set aside

    def topic_aside(self, topic: str, topic_id: str) -> SetAside | None:
        """The entry of a topic that is set aside."""
        if not self.set_aside:
            return None
        return self._aside(SetAside(TOPIC, "", "", topic=topic, topic_id=topic_id))

    def cursor_aside(self, cursor: Cursor) -> SetAside | None:
        """The entry of a subscription that is set aside."""
        if not self.set_aside:
            return None
        return self._aside(SetAside(SUBSCRIPTION, "", "", topic=cursor.topic, **cursor.key._asdict()))

    def is_set_aside(self, cursor: Cursor) -> bool:
        """Is the cursor not to be served, because it or its topic is set aside?"""
        return (
            bool(self.set_aside)
            and (self.cursor_aside(cursor) or self.topic_aside(cursor.topic, cursor.key.topic_id)) is not None
        )

    def _aside(self, wanted: SetAside) -> SetAside | None:
        entry = self.set_aside.get(wanted.id)
        return entry if entry is not None and entry.topic_id == wanted.topic_id else None

    def lease_time(self, client_id: str) -> int | None:
        """When a client's lease ends, by the machine's clock."""
        until = self.leases.get(client_id)
        return None if until is None else until - self.now.own + self.now.wall

    # Finding topics and numbering what is new in them

    def scan(self) -> list[TopicState]:
        """Look for topics made or deleted since the last look; those that are gone. An unchanged folder costs one
        stat."""
        gone = []
        for tenant, namespace in self._folders.changed():
            found = {str(name) for name in self.layout.topics(tenant, namespace)}
            for name, state in list(self.topics.items()):
                if state.topic.name[:2] == (tenant, namespace) and (name not in found or self._is_other_life(state)):
                    gone.append(self.topics.pop(name))
            for name in found - self.topics.keys():
                with self._looking_at(name):
                    self._add_topic(parse_topic_name(name))
        self._folders.seen()
        return gone

    def number_new(self, names: Iterable[str | None] = ()) -> tuple[list[TopicState], list[dict]]:
        """Number what was published since the last look; the topics that moved, and the rows for the ``ledgers`` table.

        Topics of *names* are looked for on disk first: a request may be quicker than the clock of the folder its topic
        was made in.
        """
        moved, rows = [], []
        for name in {name for name in names if name and name not in self.topics}:
            with contextlib.suppress(InvalidTopicName):
                parsed = parse_topic_name(name)
                with self._looking_at(str(parsed)):
                    self.topic(str(parsed))
        for _, state in list(self.moved()):
            rows += number_topic(state)
            moved.append(state)
        moved += [state for state in self.stopped if state not in moved]
        self.stopped = []
        return moved, rows

    def moved(self) -> Iterator[tuple[str, TopicState]]:
        """The topics, by name, whose logs hold commits that are not numbered yet. Microseconds a topic."""
        return ((name, state) for name, state in self.topics.items() if state.has_news)

    def has_news(self) -> bool:
        """Has any topic's log moved, or any folder of topics changed?"""
        return next(self.moved(), None) is not None or self.has_new_folders()

    def has_new_folders(self) -> bool:
        """Has any folder of topics changed?"""
        return bool(self._folders.changed())

    @contextlib.contextmanager
    def _looking_at(self, name: str) -> Iterator[None]:
        """A folder that is no topic of ours, or cannot be read, is passed over; the log says so, once for each
        cause."""
        try:
            yield
            self._passed_over.pop(name, None)
        except (TopicNotFound, InvalidTopicName):
            return
        except Exception as broken:  # whatever lies there: it is not served, and the log says why
            if is_fault_of_disk(broken):
                raise
            if self._passed_over.get(name) != str(broken):
                self._passed_over[name] = str(broken)
                log.warning("%s is not served: %s: %s", name, type(broken).__name__, broken)

    def _is_other_life(self, state: TopicState) -> bool:
        """Was the topic deleted and made again? Mostly a stat says that it was not; where it cannot, the topic's
        definition is read. One that is there and cannot be read is stopped, not deleted: its subscriptions wait until
        it is mended."""
        try:
            life = state.log.life()
            if life is not None and life == state.life:
                return False
            found = read_topic(self.layout, state.topic.name)
        except (FileNotFoundError, TopicNotFound):
            return True
        except Exception as broken:  # whatever lies there now
            if is_fault_of_disk(broken):
                raise
            if state.error is None:
                state.error = f"{type(broken).__name__}: {broken}"
                self.stopped.append(state)
            return False
        state.life = life
        return found.topic_id != state.topic.topic_id

    def _add_topic(self, name: TopicName) -> None:
        log, life = TableLog(self.layout.topic(name)), None
        with contextlib.suppress(FileNotFoundError):
            life = log.life()
        self.topics[str(name)] = TopicState(read_topic(self.layout, name), log, life)


@uncollected()
def load_bundle(layout: Layout) -> Bundle:
    """The bundle as its latest round left it, with ledgers numbered after that round taken over, since numbering can
    only have one outcome."""
    bundle, latest = Bundle(layout), read_latest(layout)
    if latest.round_row:
        bundle.round, bundle.version, bundle.epoch = latest.round, latest.version, latest.round_row["epoch"]
        bundle.requests_version, bundle.broker_id = latest.round_row["requests_version"], latest.round_row["broker_id"]
        wall = to_micros(latest.round_row["round_time"])
        bundle.now = Instant(to_micros(latest.round_row["due_time"]) if latest.round_row["due_time"] else wall, wall)
    bundle.scan()
    bundle.set_aside = dict(latest.set_aside)
    _keep_unreadable(bundle, latest)
    for (owner, name), value in latest.policies.items():
        if latest.owners.get(owner) in (None, bundle.topic_id(owner)):
            bundle.policies[owner, name] = value
        else:
            bundle.outlived.append(bundle.policy_row(owner, name, None))
    by_id = {state.topic.topic_id: state for state in bundle.topics.values()}
    bundle.has_lost_topics = any(topic_id not in by_id for topic_id, _ in latest.topics)
    rows, bundle.ledgers_version = read_ledgers(layout.broker_table("ledgers"))
    for topic_id, partition, run in runs_of(rows):
        if topic_id in by_id:
            state = by_id[topic_id]
            try:
                state.ledgers(partition).add(run)
            except CorruptState as broken:
                state.error = state.error or str(broken)
                bundle.stopped.append(state)
            state.publish_ids.add(run.publish_id)
    for (topic_id, partition), row in latest.topics.items():
        if topic_id in by_id:
            by_id[topic_id].trimmed[partition] = row["first"] or 0
            by_id[topic_id].version = max(by_id[topic_id].version, row["ledger_id"])
    for key in latest.cursors:
        if key.topic_id in by_id:
            bundle.cursors[key] = _load_cursor(bundle, latest, key)
    bundle.waiting_letters = WaitingLetters(latest)
    return bundle


def _keep_unreadable(bundle: Bundle, latest: LatestRows) -> None:
    """Topics whose tables are there and cannot be read are stopped, as the latest rows know them: their subscriptions
    are kept until they are mended."""
    for topic_id, row in {topic_id: row for (topic_id, _), row in latest.topics.items()}.items():
        name, error = row["topic"], bundle.why_passed_over(row["topic"])
        if error is not None and name not in bundle.topics:
            parsed = parse_topic_name(name)
            path = bundle.layout.topic(parsed)
            partitions = sum(known == topic_id and partition >= 0 for known, partition in latest.topics)
            bundle.topics[name] = TopicState(
                Topic(parsed, path, topic_id, partitions), TableLog(path), None, error=error
            )
            bundle.stopped.append(bundle.topics[name])


def _load_cursor(bundle: Bundle, latest: LatestRows, key: CursorKey) -> Cursor:
    row = latest.cursors[key]
    cursor = Cursor(key, row["topic"], row["mark_delete_position"], row["read_position"], row["subscription_type"])
    cursor.is_blocked, cursor.joined = bool(row["is_blocked"]), row["join_order"] or 0
    cursor.is_blocked_by_broker = row["status"] == BLOCKED_BY_BROKER
    cursor.reads_after = to_micros(row["due_time"]) if row["due_time"] else 0
    cursor.last_active = to_micros(row["round_time"]) if row["round_time"] else None
    cursor.msg_out_counter, cursor.msg_redeliver_counter = (
        row["msg_out_counter"] or 0,
        row["msg_redeliver_counter"] or 0,
    )
    cursor.dead_letters = dict(row["properties"] or [])
    for consumer_id, facts in sorted(latest.consumers[key].items(), key=lambda item: item[1]["join_order"]):
        properties = dict(facts["properties"] or [])
        cursor.consumers[consumer_id] = Consumer(
            consumer_id,
            facts["consumer_name"],
            facts["client_id"],
            facts["priority_level"],
            facts["join_order"],
            facts["permits"],
            bool(facts["is_blocked"]),
            facts["msg_out_counter"] or 0,
            facts["msg_redeliver_counter"] or 0,
            properties,
        )
        if facts["is_active"]:
            cursor.active_id = consumer_id
        lease_ms = _lease_ms(properties.get("lease_ms"))
        bundle.lease_ms[facts["client_id"]] = min(lease_ms, bundle.lease_ms.get(facts["client_id"], lease_ms))
    for page, ranges in latest.pages[key].items():
        cursor.load_page(page, ranges)
    return cursor


def _lease_ms(text: str | None) -> int:
    """The lease a consumer asked for, a day at most: an earlier release let longer ones through."""
    return min(int(text), MAX_LEASE_MS) if re.fullmatch("[0-9]{1,18}", text or "") else DEFAULT_LEASE_MS
