"""The runs of a topic partition that may have chunks, and no others, as numbered when they are asked for.

Chunked messages concern nobody else's runs, so whoever looks at a topic from outside reads of its past only these: of
a million publishes with ten chunked ones among them, ten. A broker has all runs that it needs in memory (see
partition_ledgers), and asks them the same.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.needed_runs import runs_with_chunks


class ChunkRuns:
    """*runs* in order of position. What lies between them are no chunks."""

    def __init__(self, runs: Sequence[Run] = ()):
        self._runs, self._firsts = runs, [run.first_position for run in runs]

    @property
    def last_chunk_position(self) -> int:
        """Behind it there are no chunks; -1 where there are none at all."""
        return self._runs[-1].last_position if self._runs else -1

    @property
    def end_position(self) -> int:
        """Behind the last chunk: as far as anybody needs to look for some."""
        return self.last_chunk_position + 1

    def chunk_runs(self, first: int) -> Iterator[Run]:
        """Those with positions from *first* on, whole."""
        behind = (self._runs[index] for index in range(self._at(first), len(self._runs)))
        return (run for run in behind if run.last_position >= first)

    def spans_of(self, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
        """The runs that hold positions of *spans* (first, last), in order and none overlapping the next, each with its
        parts of them; what is of no run is passed over."""
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
    """Those of a topic partition, as numbered now."""
    return ChunkRuns(runs_with_chunks(layout, topic_id, partition))
