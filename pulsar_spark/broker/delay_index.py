"""What a bundle's broker holds of its delay index, and what it asks of it. Theory: storage.delay_index.

A run that was numbered is *pending* until its delayed entries are in the index: small ones are read at once into the
head, in memory; others in the background (see delay_upkeep), which also turns a head that has grown into a bucket.
Until then its topic partition is ready only up to the instant before the earliest deliver time that the run may have.

Safe for threads. What asks the disk is short: a segment of a bucket.
"""

import errno
import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pulsar_spark.broker.delay_head import LEAST, Head
from pulsar_spark.broker.topics import TopicState
from pulsar_spark.errors import DelayIndexNotReady
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.protocol.positions import Positions
from pulsar_spark.storage.delay_buckets import EVER, Bucket, BucketLost, Buckets, Segments
from pulsar_spark.storage.delay_notes import NOT_INDEXED, Indexed
from pulsar_spark.storage.delay_segments import Places
from pulsar_spark.storage.delay_table import DelayTable, Loaded
from pulsar_spark.storage.delayed import Due, has_delayed, in_order, read_delayed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import Topic

AT_ONCE, MOST_AT_ONCE = 10_000, 32
"""Entries, and files, that are read by the round that numbers them: a few milliseconds."""
log = logging.getLogger(__name__)


@dataclass
class Pending:
    """Runs of one topic partition that are not in the index yet, at positions *first*..*last*; None where they are
    still to be looked up. Nothing in them is due before *earliest*."""

    first: int
    last: int
    runs: list[Run] | None
    earliest: int
    is_looked_at: bool = False


@dataclass
class Known:
    """A topic partition: the position behind the last run that was added, and what is pending, in order."""

    topic: Topic
    end: int = 0
    pending: list[Pending] = field(default_factory=list)


class DelayIndex:
    """The delayed entries of a bundle. *is_attended* says that somebody does in the background what takes long (see
    delay_upkeep); else all that is added is read at once."""

    def __init__(self, layout: Layout, *, is_attended: bool = False):
        self.layout, self.lock = layout, threading.RLock()
        self.table, self.places, self.head = DelayTable(layout), Places(), Head()
        self.sealing: Head | None = None
        """What is being written to a bucket. It is asked, and not changed."""
        self.known: dict[int, Known] = {}
        self.indexed: dict[int, Indexed] = {}
        self.buckets: Buckets
        self.dropped: dict[int, int] = {}
        self.is_wanted = threading.Event()
        """Is there anything to do in the background?"""
        self.is_attended = is_attended
        self._next: dict[int, tuple[int, int | None]] = {}
        """Of topic partitions an instant, and the earliest deliver time behind it: it is asked for at every look."""
        self._segments = Segments(self.places)
        self.doomed: set[int] = set()
        """Numbers of buckets that the table has and of which nothing is to be had any more."""
        self.unindexed: set[int] = set()
        """Topic partitions that were taken out of the index since somebody has emptied this set."""
        self.rebuilding: list[str] = []
        """Ids of topics whose entries are to be made anew."""
        self.is_dropping = False
        """Was anything dropped that may leave a bucket without use?"""
        self.load()

    def load(self) -> None:
        """Begin with what the table says. What was added before is pending again, but for what is indexed."""
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

    # What the broker tells

    def add(self, state: TopicState, partition: int, runs: Sequence[Run]) -> None:
        """Take in runs whose rows of ``ledgers`` are committed, in order; those that are known are passed over."""
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
        """Nobody needs entries due at or before *until* any more."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            if place is not None and until > self.dropped.get(place, LEAST):
                self.dropped[place] = until
                self.head.drop(place, until)
                self.is_dropping = True
                self.is_wanted.set()

    def forget(self, topic_id: str) -> None:
        """The topic is gone."""
        self._forget({topic_id})

    def retain(self, topic_ids: Collection[str]) -> None:
        """Of the topics that the index knows, only these are left."""
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
        """Make the index anew from the topics, in the background; what is there serves until then. How many topics
        there are."""
        with self.lock:
            self.rebuilding = sorted({known.topic.topic_id for known in self.known.values()})
            self.is_wanted.set()
            return len(self.rebuilding)

    # What the broker asks

    def next_due(self, topic_id: str, partition: int, after: int) -> int | None:
        """The earliest deliver time behind *after*; None where nothing waits so long. Of runs that are pending it is
        the earliest that they may have, so nothing need be due then (see :meth:`ready_until`)."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            if place is None:
                return None
            since, found = self._next.get(place, (EVER, None))
            if since <= after and (found is None or after < found):
                return found
            due = [max(each.earliest, after + 1) for each in self._pending(place)]
            is_lasting = not due
            due += [self._asked(lambda: self.buckets.next_due(place, after))]
            due += [head.next_due(place, after) for head in self._heads(place)]
            found = min((each for each in due if each is not None), default=None)
            if is_lasting and not self._pending(place):
                self._next[place] = after, found
            return found

    def due(self, topic_id: str, partition: int, after: int, until: int) -> Due:
        """The entries with *after* < deliver time <= *until*, in order of (deliver time, position).
        :class:`DelayIndexNotReady` where they are not all indexed."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            parts = []
            if place is not None:
                parts = [self._asked(lambda: self.buckets.due(place, after, until))]
                parts += [part for head in self._heads(place) for part in head.due(place, after, until)]
                self._check_ready(place, after, until)
        return in_order(parts)

    def count(self, topic_id: str, partition: int, after: int, until: int | None = None) -> int:
        """How many of those there are; of all behind *after* without *until*, as far as they are indexed. A bucket may
        turn out to be lost only now, so it is here that too few would be counted."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            if place is None:
                return 0
            counted = self._asked(lambda: self.buckets.count(place, after, until))
            if until is not None:
                self._check_ready(place, after, until)
            return counted + sum(head.count(place, after, until) for head in self._heads(place))

    def ready_until(self, topic_id: str, partition: int) -> int:
        """Up to this instant the index is whole: what is due later may come with a run that is not indexed yet."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            return min((each.earliest - 1 for each in self._pending(place)), default=EVER)

    # What the two share with the background

    def unindex(self, places: Collection[int]) -> None:
        """Nothing of the topic partitions counts as indexed any more, and what buckets have of them counts no more.
        What was added since the start is pending again."""
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
        """What was added of a topic partition and is nowhere, is pending."""
        known = self.known[place]
        missing = Positions([*indexed, *self.held(place)]).gaps(0, known.end - 1)
        known.pending[:0] = [Pending(first, last, None, LEAST + 1) for first, last in missing]

    def held(self, place: int) -> list[tuple[int, int]]:
        """Stretches of positions of a topic partition that no bucket holds."""
        return self._held(place, self._heads(place))

    def _held(self, place: int, heads: Collection[Head]) -> list[tuple[int, int]]:
        pending = [(each.first, each.last) for each in self._pending(place)]
        return pending + [stretch for head in heads for stretch in head.stretches.get(place, ())]

    def lose(self, lost: BucketLost) -> None:
        """A bucket cannot be read any more: what it has entries of is indexed again."""
        with self.lock:
            log.error("%s", lost)
            self.doomed.add(lost.bucket.number)
            left = [bucket for bucket in self.buckets.buckets if bucket is not lost.bucket]
            self.unindex(lost.bucket.places.tolist())
            self.replace_buckets(left, self.indexed)

    def indexed_with(self, place: int, done: Collection[Pending], since: int | None) -> Indexed:
        """What can be said of a topic partition once the head that is being sealed, and what is *done*, is in a bucket;
        *since* is the bucket from which on it counts, None where that stays."""
        before = self.indexed.get(place, Indexed(self.table.version + 1, Positions()))
        is_done = {(each.first, each.last) for each in done}
        held = Positions(stretch for stretch in self._held(place, [self.head]) if stretch not in is_done)
        positions = Positions([*before.positions, *held.gaps(0, self.known[place].end - 1)])
        return Indexed(before.since if since is None else since, positions)

    def done(self, place: int, pending: Collection[Pending]) -> None:
        """That is in the index now."""
        if place in self.known:
            left = self.known[place].pending
            self.known[place].pending = [each for each in left if not any(each is other for other in pending)]

    def replace_buckets(self, buckets: Sequence[Bucket], indexed: dict[int, Indexed]) -> None:
        """From now on these are asked."""
        since = {place: of.since for place, of in indexed.items()}
        self.indexed, self.buckets = indexed, Buckets(self._segments, buckets, since)

    def _pending(self, place: int | None) -> list[Pending]:
        known = self.known.get(place)
        return known.pending if known else []

    def _heads(self, place: int) -> list[Head]:
        if place not in self.known:
            return []
        return [self.head] if self.sealing is None else [self.head, self.sealing]

    def _asked(self, ask):
        """What buckets say, without those that turn out to be lost meanwhile."""
        while True:
            try:
                return ask()
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
