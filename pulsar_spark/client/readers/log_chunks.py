"""Chunked messages of a partition from its log, for a reader.

A reader that begins in the middle first reads earlier chunks, without payloads.
"""

from collections.abc import Callable, Iterator

from pulsar_spark.client.readers.topic_log import TopicLog
from pulsar_spark.client.receiving.joining import Joining
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups
from pulsar_spark.storage.chunks.chunks import ChunkedMessages
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.topics.topics import Topic

Spans = list[tuple[int, int]]
"""Stretches, first and last included."""


class LogChunks:
    """The chunks of one partition; *earlier* gives the relevant runs before a ledger. Runs get new positions."""

    def __init__(self, topic: Topic, entries: EntryReader, earlier: Callable[[int], Iterator[Run]]):
        self._earlier, self._ledgers, self._is_begun = earlier, PartitionLedgers(), False
        self._last: tuple[Run, Run] | None = None
        """The latest run of :meth:`joining`, and what was added for it."""
        self._groups = ChunkGroups(topic.path, self._ledgers)
        self._chunked = ChunkedMessages(topic.path, entries, lambda spans: self._ledgers.spans_of(spans))

    def joining(self, run: Run) -> tuple[Joining, int, Spans]:
        """For the next run with possible chunks: what joins its messages, the offset from entry ids to positions, and
        its entry ids except chunks that complete no message."""
        if not self._is_begun:
            for earlier in list(self._earlier(run.ledger_id)):
                self._add(earlier)
            self._is_begun = True
        if self._last is None or self._last[0] != run:
            self._last = run, self._add(run)
        added = self._last[1]
        self._groups.forget_before(added.first_position)
        firsts, lasts = self._groups.units(added.first_position, added.last_position)
        shift, parts = added.to_position, Positions(self._groups.parts(added.first_position, added.last_position))
        others = [
            (first - shift, last - shift) for first, last in parts.gaps(added.first_position, added.last_position)
        ]
        return Joining(self._chunked, dict(zip(lasts.tolist(), firsts.tolist()))), shift, others

    def _add(self, run: Run) -> Run:
        """Add a run, with batch size 1, so that every entry is read."""
        added = run._replace(first_position=self._ledgers.end_position, batch_size=1, chunks_from=None)
        self._ledgers.add(added)
        return added


def chunk_runs_before(topic: Topic, partition: int, ledgers: LedgerIndex, ledger_id: int) -> Iterator[Run]:
    """The runs that may have chunks of messages incomplete at publish commit *ledger_id*."""
    log = TopicLog(topic, [partition], ledgers)
    runs = log.start_at(ledgers.of(topic).chunks_from(topic.topic_id, partition, ledger_id))
    for found in (runs, log.next_runs()):
        for _, run in found:
            if run.ledger_id >= ledger_id:
                return
            if run.has_chunks:
                yield run
