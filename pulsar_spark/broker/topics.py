"""The topics of a bundle: found on disk, and numbered as far as they were published to.

A topic is known by the folder its table lies in; an unchanged folder costs one look. What lies there and is no topic of
ours is passed over, and what cannot be read is stopped by itself (see numbering).
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from pulsar_spark.broker.entry_columns import EntryColumn
from pulsar_spark.broker.entry_hashes import EntryHashes
from pulsar_spark.broker.numbering import may_go_on, number_topic
from pulsar_spark.broker.topic_news import TopicNews
from pulsar_spark.errors import InvalidTopicName, ServiceUnitNotReady, TopicNotFound
from pulsar_spark.protocol.bundles import WHOLE, BundleRange
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.protocol.topic_name import TopicName, parse_topic_name
from pulsar_spark.storage.away import check_there
from pulsar_spark.storage.bundles import check_served
from pulsar_spark.storage.chunk_groups import ChunkGroups
from pulsar_spark.storage.delayed import deliver_times
from pulsar_spark.storage.discovery import topic_folders
from pulsar_spark.storage.faults import is_fault_of_disk
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.needed_runs import published
from pulsar_spark.storage.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.partitions import partitions_now
from pulsar_spark.storage.publish_ids import PublishIds
from pulsar_spark.storage.topics import Topic, read_topic
from pulsar_spark.table_specs import LEDGERS

log = logging.getLogger(__name__)
_READ_AGAIN_SECONDS = 1.0


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
    publish_ids: PublishIds = field(default_factory=PublishIds)
    trimmed: dict[int, int] = field(default_factory=dict)
    error: str | None = None
    stopped_at: tuple | None = None
    checked_at: int | None = None
    entry_hashes: dict[int, EntryHashes] = field(default_factory=dict)
    entry_times: dict[int, EntryColumn] = field(default_factory=dict)
    chunk_groups: dict[int, ChunkGroups] = field(default_factory=dict)
    newly_delayed: list[tuple[int, Run]] = field(default_factory=list)
    """Partitions and runs with delayed entries that the delay index was not told of yet."""

    def ledgers(self, partition: int) -> PartitionLedgers:
        found = self.partitions.get(partition)
        if found is None:
            found = self.partitions[partition] = PartitionLedgers()
        return found

    def hashes(self, partition: int) -> EntryHashes:
        """The sticky-key hashes of a partition's entries."""
        found = self.entry_hashes.get(partition)
        if found is None:
            found = self.entry_hashes[partition] = EntryHashes(self.topic.path, self.ledgers(partition))
        return found

    def deliver_times(self, partition: int) -> EntryColumn:
        """The deliver times of a partition's entries, as storage.delayed.deliver_times gives them."""
        found = self.entry_times.get(partition)
        if found is None:
            read = partial(deliver_times, self.topic.path)
            found = self.entry_times[partition] = EntryColumn(self.ledgers(partition), read, np.int64)
        return found

    def let_go(self, partition: int, position: int) -> None:
        """Keep nothing of what entries before *position* say."""
        for columns in (self.entry_hashes, self.entry_times):
            if partition in columns:
                columns[partition].let_go(position)

    def chunks(self, partition: int) -> ChunkGroups:
        """What the chunks of a partition make up."""
        found = self.chunk_groups.get(partition)
        if found is None:
            found = self.chunk_groups[partition] = ChunkGroups(
                self.topic.path, self.ledgers(partition), self.first_position(partition)
            )
        return found

    @property
    def last_ledger_id(self) -> int:
        """The last publish commit that is numbered."""
        return max((ledgers.last_ledger_id for ledgers in self.partitions.values() if len(ledgers)), default=0)

    @property
    def has_news(self) -> bool:
        """Has the log moved behind what is numbered, and may it be followed? Microseconds."""
        return self.log.has(self.version + 1) and (self.error is None or may_go_on(self))

    @property
    def has_chunks(self) -> bool:
        """Does any partition have some?"""
        return any(ledgers.last_chunk_position >= 0 for ledgers in self.partitions.values())

    def has_partition(self, partition: int) -> bool:
        """Has the topic this partition? It may be one that was added since the topic was looked at."""
        if partition not in self.topic.partition_indexes and self.topic.partitions <= partition:
            self.topic = self.topic._replace(partitions=max(self.topic.partitions, partitions_now(self.topic.path)))
        return partition in self.topic.partition_indexes

    def first_position(self, partition: int) -> int:
        """The first position that was not trimmed."""
        return self.trimmed.get(partition, 0)

    def end_position(self, partition: int) -> int:
        return self.ledgers(partition).end_position


class Topics:
    """Those of a bundle, by full name: of a root's topics the ones in the slice that is *served*."""

    def __init__(self, layout: Layout, served: BundleRange = WHOLE):
        self.layout, self.served = layout, served
        self.topics: dict[str, TopicState] = {}
        self.stopped: list[TopicState] = []
        """Topics whose error was found since the last round, other than by numbering."""
        self._folders = topic_folders(layout)
        self._news = TopicNews(layout, self.topics)
        self._passed_over: dict[str, str] = {}
        self._unreadable: set[str] = set()
        """Topics that are known and whose definition could not be read when it was looked at last."""
        self._read_again_at = 0.0

    def topic_id(self, name: str) -> str | None:
        """The id of a topic that is known; None of another, and of a namespace."""
        return self.topics[name].topic.topic_id if name in self.topics else None

    def topic(self, name: str) -> TopicState:
        """The topic of that name, looked for on disk if it is new; :class:`TopicNotFound` when there is none,
        :class:`ServiceUnitNotReady` for one of another bundle."""
        if name not in self.topics:
            parsed = parse_topic_name(name)
            name = str(parsed)
            if name not in self.topics:
                self._add_topic(parsed)
        return self.topics[name]

    def topic_by_id(self, topic_id: str) -> TopicState | None:
        return next((state for state in self.topics.values() if state.topic.topic_id == topic_id), None)

    def why_passed_over(self, name: str) -> str | None:
        """Why a folder that lies where a topic would is not served; None where there is none."""
        return self._passed_over.get(name)

    def stop_unreadable(self, state: TopicState) -> None:
        """Add a topic that is there and cannot be read, with its error: it is stopped until it can be."""
        self._add(state)
        self.stopped.append(state)
        self._unreadable.add(str(state.topic.name))

    def scan(self) -> list[TopicState]:
        """Look for topics made or deleted since the last look; those that are gone. An unchanged folder costs one
        stat, one that changed a stat for each topic."""
        check_there(self.layout.root)
        self._unreadable &= self.topics.keys()
        gone = [self._drop(name) for name in sorted(self._unreadable) if self._is_other_life(self.topics[name])]
        self._read_again_at = time.monotonic() + _READ_AGAIN_SECONDS
        for namespace in self._folders.changed():
            names = self.layout.folder_names(*namespace)
            for name, state in list(self.topics.items()):
                if state.topic.name[:2] != namespace:
                    continue
                if state.topic.name.local_name not in names or self._is_other_life(state):
                    gone.append(self._drop(name))
                else:
                    names.remove(state.topic.name.local_name)
            for topic in (TopicName(*namespace, each) for each in names):
                if self.served.holds(str(topic)) and self._has_log(topic):
                    with self._looking_at(str(topic)):
                        self._add_topic(parse_topic_name(str(topic)))
        self._folders.seen()
        return gone

    def number_new(
        self, names: Iterable[str | None] = (), delayed_after: Callable[[str, int], int] = lambda topic_id, partition: 0
    ) -> tuple[list[TopicState], list[dict]]:
        """Number what was published since the last look; the topics that moved, and the rows for the ``ledgers`` table.

        The logs of *names* are asked in any case, since who asks something of a topic may have published to it before.
        One that is not known is looked for on disk first: a request may be quicker than the clock of the folder its
        topic was made in. *delayed_after* says of a topic's id and a partition after which instant entries wait that
        are numbered now.
        """
        moved, rows, named = [], [], dict.fromkeys(name for name in names if name)
        self._news.ask(named)
        for name in [name for name in named if name not in self.topics]:
            with contextlib.suppress(InvalidTopicName):
                parsed = parse_topic_name(name)
                with self._looking_at(str(parsed)):
                    self.topic(str(parsed))
        for _, state in self.moved():
            rows += number_topic(state, partial(delayed_after, state.topic.topic_id))
            moved.append(state)
        moved += [state for state in self.stopped if state not in moved]
        self.stopped = []
        return moved, rows

    def moved(self) -> list[tuple[str, TopicState]]:
        """The topics, by name, whose logs hold commits that are not numbered yet, of those that a look asks (see
        topic_news)."""
        return self._news.moved()

    def ask_all(self) -> None:
        """Let the next look ask the logs of all topics, and for new ones."""
        self._news.ask()
        self._folders.ask_again()

    def has_news(self) -> bool:
        """Has a topic's log moved that this look asks, or any folder of topics changed?"""
        return bool(self.moved()) or self.has_new_folders()

    def has_new_folders(self) -> bool:
        """Has any folder of topics changed, or is it time to read definitions again that could not be read?"""
        return bool(self._folders.changed()) or (bool(self._unreadable) and time.monotonic() >= self._read_again_at)

    def _has_log(self, topic: TopicName) -> bool:
        """A folder that may not be looked into has none: whosever it is, other topics do not wait for it."""
        try:
            return TableLog(self.layout.topic(topic)).exists()
        except PermissionError:
            return False

    @contextlib.contextmanager
    def _looking_at(self, name: str) -> Iterator[None]:
        """A folder that is no topic of ours, or cannot be read, is passed over; the log says so, once for each
        cause."""
        try:
            yield
            self._passed_over.pop(name, None)
        except (TopicNotFound, InvalidTopicName, ServiceUnitNotReady):
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
        it can be."""
        name = str(state.topic.name)
        try:
            life = state.log.life()
            if life is not None and life == state.life and name not in self._unreadable:
                return False
            found = read_topic(self.layout, state.topic.name)
        except (FileNotFoundError, TopicNotFound):
            self._unreadable.discard(name)
            return True
        except Exception as broken:  # whatever lies there now
            if is_fault_of_disk(broken):
                raise
            if state.error is None:
                state.error = f"{type(broken).__name__}: {broken}"
                self.stopped.append(state)
            self._unreadable.add(name)
            return False
        if name in self._unreadable:
            self._unreadable.discard(name)
            state.error = state.stopped_at = None
            self.stopped.append(state)
        state.life = life
        return found.topic_id != state.topic.topic_id

    def _add_topic(self, name: TopicName) -> None:
        check_served(self.served, str(name))
        log, life = TableLog(self.layout.topic(name)), None
        with contextlib.suppress(FileNotFoundError):
            life = log.life()
        topic = read_topic(self.layout, name)
        known = published(self.layout.broker_table(LEDGERS.name), topic.topic_id)
        self._add(TopicState(topic, log, life, publish_ids=known))

    def _add(self, state: TopicState) -> None:
        name = str(state.topic.name)
        self.topics[name] = state
        self._news.add(name)

    def _drop(self, name: str) -> TopicState:
        state = self.topics.pop(name)
        self._news.drop(state)
        return state
