"""The delay index of a bundle as its broker keeps it in memory. Theory: storage.delay_index.

A numbered run is *pending* until its delayed entries are indexed: small runs at once, in memory (see delay_head),
others in the background (see delay_upkeep). Until then, entries of the partition can be looked up only to the instant
before the run's earliest possible deliver time. Safe for threads.
"""

import errno
import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.delays.delay_head import LEAST, Head
from pulsar_spark.errors import DelayIndexNotReady
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delay_index.delay_buckets import EVER, Bucket, BucketLost, Buckets, Segments
from pulsar_spark.storage.delay_index.delay_notes import NOT_INDEXED, Indexed
from pulsar_spark.storage.delay_index.delay_segments import Places
from pulsar_spark.storage.delay_index.delay_table import DelayTable, Loaded
from pulsar_spark.storage.delay_index.delayed import Due, has_delayed, in_order, read_delayed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic

AT_ONCE, MOST_AT_ONCE = 10_000, 32
"""Most entries, and files, that the round which numbers them reads itself."""
log = logging.getLogger(__name__)


@dataclass
class Pending:
    """Runs of one topic partition, at positions *first*..*last*, that are not indexed. *runs* is None until looked up;
    nothing is due before *earliest*."""

    first: int
    last: int
    runs: list[Run] | None
    earliest: int
    is_looked_at: bool = False


@dataclass
class Known:
    """A topic partition: the end of its last added run, and pending runs, in order."""

    topic: Topic
    end: int = 0
    pending: list[Pending] = field(default_factory=list)


class DelayIndex:
    """The delayed entries of a bundle. With *is_attended*, a background thread does long work (see delay_upkeep); else
    all is read at once."""

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
        self._next: dict[int, tuple[int, int | None]] = {}
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
            self.head, self.sealing, self._next = Head(), None, {}
            self.doomed = {lost.number for lost in loaded.lost}
            self.replace_buckets(loaded.buckets, loaded.indexed)
            for place, known in self.known.items():
                known.pending = []
                self._look_up(place, self.indexed.get(place, NOT_INDEXED).positions)
            for lost in loaded.lost:
                log.error("delay index: bucket %d is lost (%s): it is rebuilt", lost.number, lost.why)
                self.unindex(lost.places)

    # Changes by the broker

    def add(self, state: TopicState, partition: int, runs: Sequence[Run]) -> None:
        """Add committed runs, in order; known ones are skipped."""
        with self.lock:
            place = self.places.number(state.topic.topic_id, partition)
            known = self.known.setdefault(place, Known(state.topic))
            fresh = [run for run in runs if run.first_position >= known.end]
            indexed = self.indexed.get(place, NOT_INDEXED)
            wanted = [
                run for run in fresh if has_delayed(run) and not indexed.holds(run.first_position, run.last_position)
            ]
            if wanted:
                self._next.pop(place, None)
            is_small = len(wanted) <= MOST_AT_ONCE and sum(run.entries for run in wanted) <= AT_ONCE
            if is_small or not self.is_attended:
                self.head.add_runs(place, wanted, read_delayed(state.topic.path, wanted, state.chunks(partition)))
            else:
                earliest = min(run.delayed_after for run in wanted) + 1
                known.pending.append(Pending(wanted[0].first_position, wanted[-1].last_position, wanted, earliest))
            known.end = max(known.end, fresh[-1].last_position + 1 if fresh else 0)
            if known.pending or self.head.is_full:
                self.is_wanted.set()

    def drop(self, topic_id: str, partition: int, until: int) -> None:
        """Drop entries due at or before *until*, which no cursor needs."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            if place is not None and until > self.dropped.get(place, LEAST):
                self.dropped[place] = until
                self.head.drop(place, until)
                self.is_dropping = True
                self.is_wanted.set()

    def forget(self, topic_id: str) -> None:
        """Remove a deleted topic."""
        self._forget({topic_id})

    def retain(self, topic_ids: Collection[str]) -> None:
        """Remove all topics but these."""
        self._forget({place.topic_id for place in self.places.known} - set(topic_ids))

    def _forget(self, topic_ids: set[str]) -> None:
        with self.lock:
            for number, place in enumerate(self.places.known):
                if place.topic_id in topic_ids:
                    self.known.pop(number, None)
                    self.unindex([number])
                    self.dropped.pop(number, None)
                    self.head.forget(number)

    def rebuild(self) -> int:
        """Rebuild the index from the topics in the background, while the present one serves; returns the number of
        topics."""
        with self.lock:
            self.rebuilding = sorted({known.topic.topic_id for known in self.known.values()})
            self.is_wanted.set()
            return len(self.rebuilding)

    # Queries

    def next_due(self, topic_id: str, partition: int, after: int) -> int | None:
        """The earliest deliver time after *after*; None without one. Pending runs count with their earliest possible
        time."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            if place is None:
                return None
            since, found = self._next.get(place, (EVER, None))
            if since <= after and (found is None or after < found):
                return found
            due = [max(each.earliest, after + 1) for each in self._pending(place)]
            is_lasting = not due
            due += [self._without_lost(lambda: self.buckets.next_due(place, after))]
            due += [head.next_due(place, after) for head in self._heads(place)]
            found = min((each for each in due if each is not None), default=None)
            if is_lasting and not self._pending(place):
                self._next[place] = after, found
            return found

    def due(self, topic_id: str, partition: int, after: int, until: int) -> Due:
        """Entries with *after* < deliver time <= *until*, by (deliver time, position). :class:`DelayIndexNotReady` if
        some are not indexed."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            parts = []
            if place is not None:
                parts = [self._without_lost(lambda: self.buckets.due(place, after, until))]
                parts += [part for head in self._heads(place) for part in head.due(place, after, until)]
                self._check_ready(place, after, until)
        return in_order(parts)

    def count(self, topic_id: str, partition: int, after: int, until: int | None = None) -> int:
        """The number of entries of :meth:`due`, with its error; without *until*, of all indexed ones after *after*."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            if place is None:
                return 0
            counted = self._without_lost(lambda: self.buckets.count(place, after, until))
            if until is not None:
                self._check_ready(place, after, until)
            return counted + sum(head.count(place, after, until) for head in self._heads(place))

    def ready_until(self, topic_id: str, partition: int) -> int:
        """The instant up to which the index is complete."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            return min((each.earliest - 1 for each in self._pending(place)), default=EVER)

    def is_whole(self, topic_id: str, partition: int) -> bool:
        """Does the index have all entries of a topic partition?"""
        return self.ready_until(topic_id, partition) == EVER

    # Shared with the background

    def unindex(self, places: Collection[int]) -> None:
        """Forget what is indexed of these partitions; runs added since the start are pending again."""
        for place in list(places):
            self.unindexed.add(place)
            self._next.pop(place, None)
            indexed = self.indexed.pop(place, None)
            self.buckets.since.pop(place, None)
            if indexed is not None and place in self.known:
                self._look_up(place, [])
        self.is_dropping = True
        self.is_wanted.set()

    def _look_up(self, place: int, indexed: Iterable[tuple[int, int]]) -> None:
        """Mark as pending the added runs that are neither indexed nor in a head."""
        known = self.known[place]
        missing = Positions([*indexed, *self.held(place)]).gaps(0, known.end - 1)
        known.pending[:0] = [Pending(first, last, None, LEAST + 1) for first, last in missing]

    def held(self, place: int) -> list[tuple[int, int]]:
        """The ranges of positions of a topic partition that no bucket has yet: pending runs and heads."""
        return self._held(place, self._heads(place))

    def _held(self, place: int, heads: Collection[Head]) -> list[tuple[int, int]]:
        pending = [(each.first, each.last) for each in self._pending(place)]
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
        """Indexed positions of a partition once the sealed head and *done* are in a bucket; *since* is its first valid
        bucket, None for the present one."""
        before = self.indexed.get(place, Indexed(self.table.version + 1, Positions()))
        is_done = {(each.first, each.last) for each in done}
        held = Positions(stretch for stretch in self._held(place, [self.head]) if stretch not in is_done)
        positions = Positions([*before.positions, *held.gaps(0, self.known[place].end - 1)])
        return Indexed(before.since if since is None else since, positions)

    def done(self, place: int, pending: Collection[Pending]) -> None:
        """Remove *pending* runs that are indexed now."""
        if place in self.known:
            left = self.known[place].pending
            self.known[place].pending = [each for each in left if not any(each is other for other in pending)]

    def replace_buckets(self, buckets: Sequence[Bucket], indexed: dict[int, Indexed]) -> None:
        """Query these buckets from now on."""
        since = {place: of.since for place, of in indexed.items()}
        self.indexed, self.buckets = indexed, Buckets(self._segments, buckets, since)

    def _pending(self, place: int | None) -> list[Pending]:
        known = self.known.get(place)
        return known.pending if known else []

    def _heads(self, place: int) -> list[Head]:
        if place not in self.known:
            return []
        return [self.head] if self.sealing is None else [self.head, self.sealing]

    def _without_lost(self, query):
        """The result of *query* without buckets that it finds lost."""
        while True:
            try:
                return query()
            except BucketLost as lost:
                self.lose(lost)

    def _check_ready(self, place: int, after: int, until: int) -> None:
        ready = min((each.earliest - 1 for each in self._pending(place)), default=until)
        if ready < until and after < until:
            raise DelayIndexNotReady(
                f"the delay index of topic {str(self.known[place].topic.name)!r}, partition "
                f"{self.places.known[place].partition}, is being rebuilt, and ready up to {ready} "
                "us; the broker tries again"
            ) from OSError(errno.EAGAIN, "not indexed yet")
