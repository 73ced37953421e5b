"""Answer from buckets of the delay index which entries are due, and when the next one is."""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.storage.delay_index.delay_segments import Entries, Places, SegmentFile, Statistics
from pulsar_spark.storage.delay_index.delayed import Due, in_order
from pulsar_spark.storage.entries.topic_files import READ_ERRORS, raise_unless_damage
from pulsar_spark.storage.store.store import AnyPath

EVER = 1 << 62
"""An instant later than any clock's."""
_CACHED_BYTES = 64 << 20
_OPEN_FILES = 64


class BucketLost(CorruptState):
    def __init__(self, bucket: "Bucket", path: AnyPath, cause: Exception):
        super().__init__(
            f"delay index: {str(path)!r} of bucket {bucket.number} cannot be read ({cause}): a broker "
            "rebuilds it by itself, or at once with 'pulsar-spark repair delay-index'"
        )
        self.bucket = bucket


@contextlib.contextmanager
def reading(bucket: "Bucket", path: AnyPath) -> Iterator[None]:
    """Raise :class:`BucketLost` if the file at *path* is damaged."""
    try:
        yield
    except READ_ERRORS as error:
        raise_unless_damage(error)
        raise BucketLost(bucket, path, error) from error


class Known(NamedTuple):
    """A place in a bucket: its index, its segments in order, and which of them hold no other place."""

    at: int
    segments: Statistics
    is_alone: np.ndarray


class Bucket:
    """One bucket: its *files* in *folder*, with sizes, and the statistics of their segments."""

    def __init__(self, number: int, folder: AnyPath, files: dict[str, int], found: Statistics):
        self.number, self.folder, self.files = number, folder, files
        self.names = list(files)
        self.statistics = found = found.part(np.lexsort((found.segments, found.files, found.firsts, found.places)))
        self.places, self._starts = np.unique(found.places, return_index=True)
        self._ends = np.append(self._starts[1:], len(found.places))
        self._is_alone = _are_alone(found)
        self.firsts, self.lasts = found.firsts[self._starts], found.lasts[self._ends - 1]
        self.entries = int(found.entries.sum())
        self._low, self._next = np.full(len(self.places), MAX_LONG), np.full(len(self.places), MAX_LONG)

    def of(self, place: int) -> Known | None:
        at = int(np.searchsorted(self.places, place))
        if at == len(self.places) or self.places[at] != place:
            return None
        rows = slice(int(self._starts[at]), int(self._ends[at]))
        return Known(at, self.statistics.part(rows), self._is_alone[rows])

    def known_next(self, at: int, after: int) -> int | None:
        """The first deliver time after *after* of the place at index *at*, if the last look found it."""
        return int(self._next[at]) if self._low[at] <= after < self._next[at] else None

    def note_next(self, at: int, after: int, found: int) -> None:
        self._low[at], self._next[at] = after, found


def _are_alone(found: Statistics) -> np.ndarray:
    segments = found.files.astype(np.int64) << 32 | found.segments
    _, index, counts = np.unique(segments, return_inverse=True, return_counts=True)
    return counts[index] == 1


class _Decoded:
    def __init__(self, entries: Entries):
        order: np.ndarray | slice = np.argsort(entries.places, kind="stable")
        if isinstance(order, np.ndarray) and (order[1:] > order[:-1]).all():
            order = slice(None)
        self._due = entries.due.part(order)
        self._places = entries.places[order]

    @property
    def nbytes(self) -> int:
        return self._places.nbytes + sum(column.nbytes for column in self._due)

    def of(self, place: int) -> Due:
        first, last = (int(np.searchsorted(self._places, place, side)) for side in ("left", "right"))
        return self._due.part(slice(first, last))


class Segments:
    """Reads segments; the last segments stay decoded and the last files open. Thread-safe."""

    def __init__(self, places: Places, cached_bytes: int = _CACHED_BYTES):
        self._places, self._cached_bytes, self._bytes = places, cached_bytes, 0
        self._decoded: OrderedDict[tuple[AnyPath, int], _Decoded] = OrderedDict()
        self._open: OrderedDict[AnyPath, SegmentFile] = OrderedDict()
        self._lock = threading.RLock()
        self.read = 0
        """How many were read from the disk."""

    def of(self, bucket: Bucket, file: int, segment: int, only: int | None = None) -> _Decoded:
        """A segment of the bucket; *only* is its place if it has just one. :class:`BucketLost` if it is unreadable."""
        path = bucket.folder / bucket.names[file]
        with self._lock:
            found = self._decoded.get((path, segment))
            if found is None:
                with reading(bucket, path):
                    found = _Decoded(self._file(path).read(segment, self._places, only))
                self.read += 1
                self._decoded[path, segment] = found
                self._bytes += found.nbytes
                while self._bytes > self._cached_bytes and len(self._decoded) > 1:
                    self._bytes -= self._decoded.popitem(last=False)[1].nbytes
            self._decoded.move_to_end((path, segment))
            return found

    def _file(self, path: AnyPath) -> SegmentFile:
        if path not in self._open:
            self._open[path] = SegmentFile(path)
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)
        self._open.move_to_end(path)
        return self._open[path]


class Buckets:
    """Several buckets as one; *since* gives a place's first bucket that counts."""

    def __init__(self, segments: Segments, buckets: Sequence[Bucket], since: dict[int, int]):
        self.buckets, self.since = list(buckets), since
        self._segments = segments

    def _with(self, place: int) -> Iterator[tuple[Bucket, Known]]:
        since = self.since.get(place, MAX_LONG)
        for bucket in self.buckets:
            if bucket.number >= since:
                known = bucket.of(place)
                if known is not None:
                    yield bucket, known

    def next_due(self, place: int, after: int) -> int | None:
        """The earliest deliver time after *after*; None for none."""
        found = []
        for bucket, known in self._with(place):
            if bucket.lasts[known.at] > after:
                next_due = bucket.known_next(known.at, after)
                if next_due is None:
                    next_due = self._next_of(bucket, place, known, after)
                    bucket.note_next(known.at, after, next_due)
                found.append(next_due)
        return min(found, default=None)

    def _next_of(self, bucket: Bucket, place: int, known: Known, after: int) -> int:
        first = int(np.searchsorted(known.segments.lasts, after, "right"))
        if known.segments.firsts[first] > after:
            return int(known.segments.firsts[first])
        times = self._due_of(bucket, place, known, first).times
        return int(times[np.searchsorted(times, after, "right")])

    def due(self, place: int, after: int, until: int) -> Due:
        return in_order(
            self._due_of(bucket, place, known, at).between(after, until)
            for bucket, known in self._with(place)
            for at in range(*_touched(known.segments, after, until))
        )

    def count(self, place: int, after: int, until: int | None) -> int:
        """The number of entries of :meth:`due` (None: no limit); whole segments are counted by statistics."""
        counted, latest = 0, MAX_LONG if until is None else until
        for bucket, known in self._with(place):
            first, end = _touched(known.segments, after, latest)
            found = known.segments.part(slice(first, end))
            is_whole = (found.firsts > after) & (found.lasts <= latest)
            counted += int(found.entries[is_whole].sum())
            for at in np.flatnonzero(~is_whole) + first:
                counted += len(self._due_of(bucket, place, known, int(at)).between(after, until))
        return counted

    def parts(self, place: int, after: int, until: int, most: int) -> Iterator[tuple[int, Due]]:
        """The entries of :meth:`due` in parts of about *most*, each with the instant where it ends.

        Entries that are due at one instant stay together.
        """
        while after < until:
            ends = [until]
            for _, known in self._with(place):
                first, end = _touched(known.segments, after, until)
                enough = np.flatnonzero(known.segments.entries[first:end].cumsum() >= most)
                ends += known.segments.lasts[first:end][enough[:1]].tolist()
            yield min(ends), self.due(place, after, min(ends))
            after = min(ends)

    def _due_of(self, bucket: Bucket, place: int, known: Known, at: int) -> Due:
        only = place if known.is_alone[at] else None
        return self._segments.of(bucket, int(known.segments.files[at]), int(known.segments.segments[at]), only).of(
            place
        )


def _touched(found: Statistics, after: int, until: int) -> tuple[int, int]:
    """Indexes from and to (exclusive) of segments that overlap an interval; they ascend in time."""
    first = int(np.searchsorted(found.lasts, after, "right"))
    return first, max(first, int(np.searchsorted(found.firsts, until, "right")))
