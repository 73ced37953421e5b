"""The runs of a topic partition that may have chunks, for readers without a broker."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.needed_runs import runs_with_chunks


class ChunkRuns:
    """Runs that may have chunks, in order of position."""

    def __init__(self, runs: Sequence[Run] = ()):
        self._runs, self._firsts = runs, [run.first_position for run in runs]

    @property
    def last_chunk_position(self) -> int:
        """Position of the last possible chunk; -1 if there are none."""
        return self._runs[-1].last_position if self._runs else -1

    @property
    def end_position(self) -> int:
        """The position after the last possible chunk."""
        return self.last_chunk_position + 1

    def chunk_runs(self, first: int) -> Iterator[Run]:
        """The whole runs that have positions from *first* on."""
        later = (self._runs[index] for index in range(self._at(first), len(self._runs)))
        return (run for run in later if run.last_position >= first)

    def spans_of(self, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
        """The runs that hold positions of *spans* (first, last; in order, without overlaps), each with its parts of
        them."""
        run, parts = None, []
        for first, last in spans:
            for found in self.chunk_runs(first):
                if found.first_position > last:
                    break
                if found is not run:
                    if parts:
                        yield run, parts
                    run, parts = found, []
                parts.append((max(first, run.first_position), min(last, run.last_position)))
        if parts:
            yield run, parts

    def _at(self, position: int) -> int:
        return max(bisect_right(self._firsts, position) - 1, 0)


def chunk_runs_of(layout: Layout, topic_id: str, partition: int) -> ChunkRuns:
    """The runs of a topic partition that may have chunks, as numbered now."""
    return ChunkRuns(runs_with_chunks(layout, topic_id, partition))
