"""The delayed entries of a topic partition, for readers without a broker."""

from collections.abc import Iterator

import numpy as np

from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import chunks_of
from pulsar_spark.storage.delay_index.delay_index import IndexReader
from pulsar_spark.storage.delay_index.delayed import Due, has_delayed, read_delayed
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic


class Delayed:
    def __init__(self, index: LedgerIndex, topic: Topic, partition: int):
        self._index, self.topic, self.partition = index, topic, partition
        self._delayed = IndexReader(index.layout, topic, partition)

    @property
    def end(self) -> int:
        return self._index.end(self.topic.topic_id, self.partition)

    def by_position(self, first: int, last: int) -> Due:
        runs = list(self._runs(first, last))
        found = read_delayed(self.topic.path, runs, chunks_of(self._index.layout, self.topic, self.partition, runs))
        return found.part(np.argsort(found.positions))

    def first_position(self) -> int | None:
        """A position before which nothing is delayed; None if nothing is."""
        runs = self._runs(0, self.end - 1) if self.end else ()
        return next((run.first_position for run in runs if has_delayed(run)), None)

    def count(self, after: int, until: int = MAX_LONG) -> int:
        return self._delayed.count(after, until)

    def between(self, after: int, until: int = MAX_LONG) -> Iterator[Due]:
        """See :meth:`IndexReader.between`."""
        return self._delayed.between(after, until)

    def _runs(self, first: int, last: int) -> Iterator[Run]:
        return self._index.runs(self.topic.topic_id, self.partition, first, last)
