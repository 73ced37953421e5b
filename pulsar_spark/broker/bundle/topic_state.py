"""A topic as the broker knows it: how far it is numbered, and columns of its entries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pulsar_spark.broker.bundle.entry_columns import EntryColumn
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups
from pulsar_spark.storage.delay_index.delayed import deliver_times
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.entries.key_hashes import read_hashes
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.ledgers.publish_ids import PublishIds
from pulsar_spark.storage.store.store import store_of
from pulsar_spark.storage.topics.partitions import partitions_now
from pulsar_spark.storage.topics.topics import Topic


@dataclass
class TopicState:
    """A topic and how far it is numbered. ``life`` tells its table from another in its place, ``trimmed`` has first
    positions of trimmed partitions, ``error`` and ``stopped_at`` say why and where numbering stopped."""

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
    entry_hashes: dict[int, EntryColumn] = field(default_factory=dict)
    entry_times: dict[int, EntryColumn] = field(default_factory=dict)
    chunk_groups: dict[int, ChunkGroups] = field(default_factory=dict)
    newly_delayed: list[tuple[int, Run]] = field(default_factory=list)
    """Partitions and runs with delayed entries that the delay index does not know yet."""

    def ledgers(self, partition: int) -> PartitionLedgers:
        if partition not in self.partitions:
            self.partitions[partition] = PartitionLedgers()
        return self.partitions[partition]

    def hashes(self, partition: int) -> EntryColumn:
        return self._column(self.entry_hashes, partition, lambda runs: read_hashes(self.topic.path, runs), np.int32)

    def deliver_times(self, partition: int) -> EntryColumn:
        return self._column(self.entry_times, partition, lambda runs: deliver_times(self.topic.path, runs), np.int64)

    def _column(
        self,
        columns: dict[int, EntryColumn],
        partition: int,
        read: Callable[[Sequence[Run]], np.ndarray],
        kind: type[np.integer],
    ) -> EntryColumn:
        if partition not in columns:
            columns[partition] = EntryColumn(self.ledgers(partition), read, kind)
        return columns[partition]

    def drop_before(self, partition: int, position: int) -> None:
        for columns in (self.entry_hashes, self.entry_times):
            if partition in columns:
                columns[partition].drop_before(position)

    def chunks(self, partition: int) -> ChunkGroups:
        if partition not in self.chunk_groups:
            first = self.first_position(partition)
            self.chunk_groups[partition] = ChunkGroups(self.topic.path, self.ledgers(partition), first)
        return self.chunk_groups[partition]

    @property
    def last_ledger_id(self) -> int:
        """The last publish commit that is numbered."""
        return max((ledgers.last_ledger_id for ledgers in self.partitions.values() if len(ledgers)), default=0)

    @property
    def has_news(self) -> bool:
        """Has the log commits to number, and may numbering continue? Takes microseconds."""
        return self.log.has(self.version + 1) and (self.error is None or self.stamp() != self.stopped_at)

    def stamp(self) -> tuple:
        """What changes when the commit at which numbering stopped is replaced, or others follow."""
        file = self.log.file(self.version + 1)
        try:
            found = store_of(file).stamp(file)
        except FileNotFoundError:
            return ()
        return *found, self.log.latest(self.version + 1)

    @property
    def has_chunks(self) -> bool:
        return any(ledgers.last_chunk_position >= 0 for ledgers in self.partitions.values())

    def has_partition(self, partition: int) -> bool:
        """Has the topic this partition, perhaps added since the last look?"""
        if partition not in self.topic.partition_indexes and self.topic.partitions <= partition:
            self.topic = self.topic._replace(partitions=max(self.topic.partitions, partitions_now(self.topic.path)))
        return partition in self.topic.partition_indexes

    def first_position(self, partition: int) -> int:
        """The first position that was not trimmed."""
        return self.trimmed.get(partition, 0)

    def end_position(self, partition: int) -> int:
        return self.ledgers(partition).end_position
