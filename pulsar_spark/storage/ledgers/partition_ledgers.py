"""Look up the runs of one topic partition: by position, by entry, by ledger, and as columns."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, overload

import numpy as np

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.ledgers.packed_runs import PackedRuns


class Stretches(NamedTuple):
    """Runs as columns. Entries with a deliver time after ``delayed_after`` are delayed; the largest long if none is."""

    firsts: np.ndarray
    lasts: np.ndarray
    batch_sizes: np.ndarray
    has_delayed: np.ndarray
    may_have_chunks: np.ndarray
    delayed_after: np.ndarray

    def of(self, positions: np.ndarray) -> np.ndarray:
        """The index of the run of each of *positions*."""
        return np.searchsorted(self.firsts, positions, "right") - 1


class PartitionLedgers(PackedRuns):
    """The runs of one topic partition. Lookups are binary searches."""

    @property
    def runs(self) -> Sequence[Run]:
        return _Runs(self)

    def chunk_runs(self, first: int) -> Iterator[Run]:
        """The runs that may have chunks and end at *first* or later, uncut."""
        if first <= self._past.last_chunk_position:
            self.recall()
        first = max(first, self._past.end_position)
        at = bisect_left(self._chunk_runs, max(self.index_of(first), 0))
        if at < len(self._chunk_runs) and self[self._chunk_runs[at]].last_position < first:
            at += 1
        return (self[index] for index in self._chunk_runs[at:])

    def index_of_entry(self, ledger_id: int, entry_id: int) -> int:
        """Index of the run that holds the entry, or of the last before it."""
        if ledger_id <= self._past.last_ledger_id:
            self.recall()
        first, last = bisect_left(self._ledger_ids, ledger_id), bisect_right(self._ledger_ids, ledger_id)
        return self._past.runs + bisect_right(self._numbers["first_entry_id"], entry_id, first, last) - 1

    def run_of_entry(self, ledger_id: int, entry_id: int) -> Run | None:
        """The run that holds the entry; None if there is none."""
        index = self.index_of_entry(ledger_id, entry_id)
        run = self[index] if index >= 0 else None
        return run if run and run.ledger_id == ledger_id and entry_id <= run.last_entry_id else None

    def first_after(self, ledger_id: int) -> int:
        """Position of the first entry of a later ledger; else the end position."""
        if ledger_id < self._past.last_ledger_id:
            self.recall()
        at = bisect_right(self._ledger_ids, ledger_id)
        return self._firsts[at] if at < len(self._firsts) else self.end_position

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        for index in range(max(self.index_of(first), 0), len(self)):
            if self._firsts[self._at(index)] > last:
                return
            yield self[index]

    def parts(self, first: int, last: int) -> Iterator[Run]:
        """Runs cut to positions *first*..*last*; :class:`CorruptState` if no run has one of these positions."""
        self._check_numbered(first, last)
        return (run.part(first, last) for run in self.overlapping(first, last))

    def _check_numbered(self, first: int, last: int) -> None:
        if first < 0 or last >= self.end_position:
            missing = first if first < 0 or first >= self.end_position else self.end_position
            raise CorruptState(f"position {missing} is in no ledger: {DOCTOR}")

    def spans_of(self, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
        return spans_by_run(self, spans)

    def stretches(self, first: int, last: int) -> Stretches:
        """:meth:`parts` as columns."""
        self._check_numbered(first, last)
        begin, end = (self._at(max(self.index_of(each), 0)) for each in (first, last))
        here = slice(begin, end + 1 if last >= first else begin)
        firsts, entries, sizes = (
            np.frombuffer(self._numbers[name][here], np.int64) for name in ("first_position", "entries", "batch_size")
        )
        return Stretches(
            np.maximum(firsts, first),
            np.minimum(firsts + entries - 1, last),
            sizes,
            self._has_delayed.part(here.start, here.stop),
            self._has_chunks.part(here.start, here.stop) & (sizes == 1),
            self._delayed_after.part(here.start, here.stop, MAX_LONG),
        )

    def batch_sizes(self, positions: np.ndarray) -> np.ndarray:
        """Messages in the entry at each of the numbered *positions*."""
        if len(positions) and positions.min() < self._past.end_position:
            self.recall()
        indexes = np.searchsorted(np.frombuffer(self._firsts, np.int64), positions, "right") - 1
        return np.frombuffer(self._numbers["batch_size"], np.int64)[indexes]


class HasRuns(Protocol):
    @property
    def end_position(self) -> int: ...
    def overlapping(self, first: int, last: int) -> Iterator[Run]: ...


def spans_by_run(ledgers: HasRuns, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
    """The runs that the ordered, disjoint *spans* (first, last) lie in, each with the parts of spans in it."""
    found: list[tuple[Run, list[tuple[int, int]]]] = []
    until, end = -1, ledgers.end_position - 1
    for first, last in spans:
        last = min(last, end)
        while first <= last:
            if first > until:
                run = next(ledgers.overlapping(first, last), None)
                if run is None:
                    break
                yield from found
                found, until = [(run, [])], run.last_position
            run, parts = found[0]
            parts.append((max(first, run.first_position), min(last, until)))
            first = until + 1
    yield from found


class _Runs(Sequence[Run]):
    def __init__(self, ledgers: PartitionLedgers):
        self._ledgers = ledgers

    def __len__(self) -> int:
        return len(self._ledgers)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        if isinstance(index, slice):
            return [self._ledgers[at] for at in range(*index.indices(len(self)))]
        return self._ledgers[index]
