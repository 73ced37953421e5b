"""Which delayed entries of a bundle are indexed, in buckets or in the head, and which are pending. Threads share it,
under its lock."""

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pulsar_spark.broker.delays.delay_head import LEAST, Head
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delay_index.delay_buckets import Bucket, BucketLost, Buckets, Segments
from pulsar_spark.storage.delay_index.delay_notes import NOT_INDEXED, Indexed
from pulsar_spark.storage.delay_index.delay_segments import Places
from pulsar_spark.storage.delay_index.delay_table import DelayTable, Loaded
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic

log = logging.getLogger(__name__)


@dataclass
class Pending:
    """Runs of one topic partition that are not indexed. *runs* is None until looked up; nothing is due before
    *earliest*."""

    first: int
    last: int
    runs: list[Run] | None
    earliest: int
    is_looked_at: bool = False


def earliest_due(run: Run) -> int:
    """An instant before which no delayed entry of a run is due."""
    return LEAST if run.delayed_after is None else run.delayed_after + 1


@dataclass
class Known:
    """A topic partition: the end of its last added run, and pending runs, in order."""

    topic: Topic
    end: int = 0
    pending: list[Pending] = field(default_factory=list)


class IndexedEntries:
    """What is indexed of a bundle's delayed entries. With *is_attended*, a background thread does long work."""

    def __init__(self, layout: Layout, *, is_attended: bool = False):
        self.layout, self.lock = layout, threading.RLock()
        self.table, self.places, self.head = DelayTable(layout), Places(), Head()
        self.sealing: Head | None = None
        """The entries that are being written to a bucket. Queries read them, and nothing changes them."""
        self.known: dict[int, Known] = {}
        self.indexed: dict[int, Indexed] = {}
        self.buckets: Buckets
        self.dropped: dict[int, int] = {}
        self.is_wanted = threading.Event()
        """Is there anything to do in the background?"""
        self.is_attended = is_attended
        self.next_times: dict[int, tuple[int, int | None]] = {}
        """By topic partition: an instant, and the earliest deliver time after it, which every look needs."""
        self._segments = Segments(self.places)
        self.doomed: set[int] = set()
        """Numbers of buckets that the table has and that cannot be read any more."""
        self.unindexed: set[int] = set()
        """Topic partitions that were removed from the index since this set was last emptied."""
        self.rebuilding: list[str] = []
        """Ids of topics whose entries must be indexed again."""
        self.is_dropping = False
        """Was anything dropped that may leave a bucket without use?"""
        self.load()

    def load(self) -> None:
        """Start from the stored table; added runs that it lacks become pending again."""
        loaded = self.table.load(self.places)
        if any(lost.places is None for lost in loaded.lost):
            log.error("delay index: %s: it is rebuilt from the topics", loaded.lost[0].why)
            self.table.remove()
            loaded = Loaded([], {}, [])
        with self.lock:
            self.head, self.sealing, self.next_times = Head(), None, {}
            self.doomed = {lost.number for lost in loaded.lost}
            self.replace_buckets(loaded.buckets, loaded.indexed)
            for place, known in self.known.items():
                known.pending = []
                self._look_up(place, self.indexed.get(place, NOT_INDEXED).positions)
            for lost in loaded.lost:
                log.error("delay index: bucket %d is lost (%s): it is rebuilt", lost.number, lost.why)
                self.unindex(lost.places or ())

    def unindex(self, places: Collection[int]) -> None:
        """Forget what is indexed of these partitions; runs added since the start are pending again."""
        for place in list(places):
            self.unindexed.add(place)
            self.next_times.pop(place, None)
            indexed = self.indexed.pop(place, None)
            self.buckets.since.pop(place, None)
            if indexed is not None and place in self.known:
                self._look_up(place, [])
        self.is_dropping = True
        self.is_wanted.set()

    def _look_up(self, place: int, indexed: Iterable[tuple[int, int]]) -> None:
        """Mark as pending the added runs that are neither indexed nor in a head."""
        known = self.known[place]
        missing = Positions([*indexed, *self.outside_buckets(place)]).gaps(0, known.end - 1)
        known.pending[:0] = [Pending(first, last, None, LEAST + 1) for first, last in missing]

    def outside_buckets(self, place: int) -> list[tuple[int, int]]:
        """The stretches of a topic partition that no bucket has yet: pending runs and heads."""
        return self._outside_buckets(place, self.heads(place))

    def _outside_buckets(self, place: int, heads: Collection[Head]) -> list[tuple[int, int]]:
        pending = [(each.first, each.last) for each in self.pending(place)]
        return pending + [stretch for head in heads for stretch in head.stretches.get(place, ())]

    def lose(self, lost: BucketLost) -> None:
        """Remove an unreadable bucket, and index its entries again."""
        with self.lock:
            log.error("%s", lost)
            self.doomed.add(lost.bucket.number)
            left = [bucket for bucket in self.buckets.buckets if bucket is not lost.bucket]
            self.unindex(lost.bucket.places.tolist())
            self.replace_buckets(left, self.indexed)

    def indexed_with(self, place: int, done: Collection[Pending], since: int | None) -> Indexed:
        """What is indexed of a partition once the sealed head and *done* are in a bucket; *since* is its first valid
        bucket, None for the present one."""
        before = self.indexed.get(place, Indexed(self.table.version + 1, Positions()))
        is_done = {(each.first, each.last) for each in done}
        unsealed = Positions(stretch for stretch in self._outside_buckets(place, [self.head]) if stretch not in is_done)
        positions = Positions([*before.positions, *unsealed.gaps(0, self.known[place].end - 1)])
        return Indexed(before.since if since is None else since, positions)

    def done(self, place: int, pending: Collection[Pending]) -> None:
        if place in self.known:
            left = self.known[place].pending
            self.known[place].pending = [each for each in left if not any(each is other for other in pending)]

    def replace_buckets(self, buckets: Sequence[Bucket], indexed: dict[int, Indexed]) -> None:
        """Query these buckets from now on."""
        since = {place: of.since for place, of in indexed.items()}
        self.indexed, self.buckets = indexed, Buckets(self._segments, buckets, since)

    def pending(self, place: int) -> list[Pending]:
        known = self.known.get(place)
        return known.pending if known else []

    def heads(self, place: int) -> list[Head]:
        if place not in self.known:
            return []
        return [self.head] if self.sealing is None else [self.head, self.sealing]
