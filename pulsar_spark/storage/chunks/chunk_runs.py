"""The runs of a topic partition that may have chunks, for readers without a broker."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.needed_runs import runs_with_chunks
from pulsar_spark.storage.ledgers.partition_ledgers import spans_by_run


class ChunkRuns:
    def __init__(self, runs: Sequence[Run] = ()):
        self._runs, self._firsts = runs, [run.first_position for run in runs]

    @property
    def last_chunk_position(self) -> int:
        """Position of the last possible chunk; -1 if there are none."""
        return self._runs[-1].last_position if self._runs else -1

    @property
    def end_position(self) -> int:
        return self.last_chunk_position + 1

    def chunk_runs(self, first: int) -> Iterator[Run]:
        """The whole runs that have positions from *first* on."""
        at = max(bisect_right(self._firsts, first) - 1, 0)
        return (self._runs[index] for index in range(at, len(self._runs)) if self._runs[index].last_position >= first)

    def spans_of(self, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
        return spans_by_run(self, spans)

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        return takewhile(lambda run: run.first_position <= last, self.chunk_runs(first))


def chunk_runs_of(layout: Layout, topic_id: str, partition: int) -> ChunkRuns:
    """The runs of a topic partition that may have chunks, as numbered now."""
    return ChunkRuns(runs_with_chunks(layout, topic_id, partition))
