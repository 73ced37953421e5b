"""Chunked messages of a partition as its log tells them, for a reader, which has no broker to say where they begin.

Which chunks make up messages follows from all chunks before, so where a reader begins in the middle of a topic those
are read first, without their payloads, as far back as the ``ledgers`` table says, or from the start of the log. A
message whose last chunk is behind the place where the reader begins comes, wherever its first one is.
"""

from collections.abc import Callable, Iterator

from pulsar_spark.client.joining import Joining
from pulsar_spark.client.topic_log import TopicLog
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.protocol.positions import Positions
from pulsar_spark.storage.chunk_groups import ChunkGroups
from pulsar_spark.storage.chunks import ChunkedMessages
from pulsar_spark.storage.entries import EntryReader
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.topics import Topic


class LogChunks:
    """Those of one partition; *earlier* gives the runs before a ledger that may matter. Only runs that may have chunks
    are kept, by positions of their own."""

    def __init__(self, topic: Topic, entries: EntryReader, earlier: Callable[[int], Iterator[Run]]):
        self._earlier, self._ledgers, self._is_begun = earlier, PartitionLedgers(), False
        self._last: tuple[Run, Run] | None = None
        """The run that was asked about last, and what was added for it."""
        self._groups = ChunkGroups(topic.path, self._ledgers)
        self._chunked = ChunkedMessages(topic.path, entries, lambda spans: self._ledgers.spans_of(spans))

    def joining(self, run: Run) -> tuple[Joining, int, list[tuple[int, int]]]:
        """What puts together the messages that end in the next run which may have chunks, what its entry ids and the
        positions used there differ by, and its entry ids but for those of chunks that complete no message: whoever
        reads these, too, reads a large payload twice. Where that failed it is asked again of the same run."""
        if not self._is_begun:
            for earlier in list(self._earlier(run.ledger_id)):
                self._add(earlier)
            self._is_begun = True
        if self._last is None or self._last[0] != run:
            self._last = run, self._add(run)
        added = self._last[1]
        self._groups.let_go(added.first_position)
        firsts, lasts = self._groups.units(added.first_position, added.last_position)
        shift, parts = added.to_position, Positions(self._groups.parts(added.first_position, added.last_position))
        others = [
            (first - shift, last - shift) for first, last in parts.gaps(added.first_position, added.last_position)
        ]
        return Joining(self._chunked, dict(zip(lasts.tolist(), firsts.tolist()))), shift, others

    def _add(self, run: Run) -> Run:
        """Of a run whose batches differ every entry is looked at, as if there were none."""
        added = run._replace(first_position=self._ledgers.end_position, batch_size=1, chunks_from=None)
        self._ledgers.add(added)
        return added


def chunk_runs_before(topic: Topic, partition: int, ledgers: LedgerIndex, ledger_id: int) -> Iterator[Run]:
    """The runs that may have chunks of messages which are not complete where publish commit *ledger_id* begins."""
    log = TopicLog(topic, [partition], ledgers)
    runs = log.start_at(ledgers.of(topic).chunks_from(topic.topic_id, partition, ledger_id))
    for found in (runs, log.next_runs()):
        for _, run in found:
            if run.ledger_id >= ledger_id:
                return
            if run.has_chunks:
                yield run
