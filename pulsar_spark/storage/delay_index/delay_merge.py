"""Write buckets, and merge several into one without holding them in memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np

from pulsar_spark.storage.delay_index.delay_buckets import Bucket, reading
from pulsar_spark.storage.delay_index.delay_files import write_named
from pulsar_spark.storage.delay_index.delay_notes import NewBucket
from pulsar_spark.storage.delay_index.delay_segments import (
    FILE_ENTRIES,
    NO_ENTRIES,
    SEGMENT_ENTRIES,
    Entries,
    Places,
    SegmentFile,
    Statistics,
    joined,
    together,
    write_segments,
)
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from pulsar_spark.storage.delta.data_files import removing


def write_bucket(table: DelayTable, segments: Iterable[Entries], places: Places) -> NewBucket:
    """Write a bucket of *segments* in order; no commit names it yet."""
    number, folder = table.new_folder()
    names, written, found, rest = list[str](), list[dict](), list[Statistics](), iter(segments)
    with removing(folder, written):
        while first := next(rest, None):
            of_file = chain([first], islice(rest, FILE_ENTRIES // SEGMENT_ENTRIES - 1))
            name, statistics = write_named(
                folder,
                lambda draft: write_segments(draft, of_file, places.known, file=len(found)),
                lambda name: written.append({"path": name}),
                number=len(names),
                by_footer=True,
            )
            names.append(name)
            found.append(statistics)
    return NewBucket(number, folder, names, Statistics.joined(found))


def segments_of(entries: Entries) -> Iterator[Entries]:
    for first in range(0, len(entries), SEGMENT_ENTRIES):
        yield entries.part(slice(first, first + SEGMENT_ENTRIES))


def write_entries(table: DelayTable, entries: Entries, places: Places) -> NewBucket:
    entries = together([entries], places.ranks())
    return write_bucket(table, segments_of(entries), places)


def merge_buckets(
    table: DelayTable, buckets: Sequence[Bucket], places: Places, needed: Callable[[Bucket, Entries], np.ndarray]
) -> NewBucket:
    """Write one bucket with the *needed* entries of *buckets*; :class:`BucketLost` if one cannot be read.

    Memory holds a segment of each file.
    """
    streams = [_Stream(bucket, file, places, needed) for bucket in buckets for file in range(len(bucket.names))]
    return write_bucket(table, _recut(_merged(streams, places)), places)


class _Stream:
    def __init__(self, bucket: Bucket, file: int, places: Places, needed: Callable[[Bucket, Entries], np.ndarray]):
        self._bucket, self._path = bucket, bucket.folder / bucket.names[file]
        self._places, self._needed, self._segment = places, needed, 0
        with reading(bucket, self._path):
            self._file = SegmentFile(self._path)
        of_file = bucket.statistics.firsts[bucket.statistics.files == file]
        self.first_time = int(of_file.min()) if len(of_file) else 0
        self.buffered = NO_ENTRIES

    @property
    def has_more(self) -> bool:
        return self._segment < self._file.segments

    def fill(self) -> None:
        """Read the next segment with needed entries once the last one is used up."""
        while self.has_more and not len(self.buffered):
            with reading(self._bucket, self._path):
                entries = self._file.read(self._segment, self._places)
            self._segment += 1
            self.buffered = entries.part(self._needed(self._bucket, entries))


def _merged(streams: list[_Stream], places: Places) -> Iterator[Entries]:
    """The entries of all streams, in order, in blocks.

    A block ends where an unread segment or unopened stream may have the next entry.
    """
    waiting = sorted(streams, key=lambda stream: stream.first_time, reverse=True)
    ranks, opened = places.ranks(), list[_Stream]()
    while waiting or opened:
        for stream in opened:
            stream.fill()
        opened = [stream for stream in opened if len(stream.buffered)]
        least = min((int(stream.buffered.due.times[0]) for stream in opened), default=None)
        if waiting and (least is None or waiting[-1].first_time <= least):
            opened.append(waiting.pop())
            continue
        if not opened:
            return
        bounds = [_key(stream.buffered, -1, ranks) for stream in opened if stream.has_more]
        if waiting:
            bounds.append((waiting[-1].first_time, -1, -1))
        bound, taken = min(bounds, default=None), []
        for stream in opened:
            end = len(stream.buffered) if bound is None else _end_of(stream.buffered, bound, ranks)
            taken.append(stream.buffered.part(slice(0, end)))
            stream.buffered = stream.buffered.part(slice(end, None))
        yield together(taken, ranks)


def _key(entries: Entries, at: int, ranks: np.ndarray) -> tuple[int, int, int]:
    return int(entries.due.times[at]), int(ranks[entries.places[at]]), int(entries.due.positions[at])


def _end_of(entries: Entries, bound: tuple[int, int, int], ranks: np.ndarray) -> int:
    time, rank, position = bound
    first, last = (int(np.searchsorted(entries.due.times, time, side)) for side in ("left", "right"))
    here = ranks[entries.places[first:last]]
    begin, end = (int(np.searchsorted(here, rank, side)) for side in ("left", "right"))
    return first + begin + int(np.searchsorted(entries.due.positions[first + begin : first + end], position, "right"))


def _recut(blocks: Iterable[Entries]) -> Iterator[Entries]:
    kept, size = [], 0
    for block in blocks:
        kept.append(block)
        size += len(block)
        if size >= SEGMENT_ENTRIES:
            whole = joined(kept)
            end = size - size % SEGMENT_ENTRIES
            yield from segments_of(whole.part(slice(0, end)))
            kept, size = [whole.part(slice(end, None))], size - end
    if size:
        yield joined(kept)
