"""The delay index of a bundle, for its broker's rounds. Safe for threads.

A numbered run is *pending* until its delayed entries are indexed: small runs at once, others in the background. Until
then, entries can be looked up only to the instant before the run's earliest possible deliver time.
"""

import errno
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.delays.delay_head import LEAST
from pulsar_spark.broker.delays.indexed_entries import IndexedEntries, Known, Pending, earliest_due
from pulsar_spark.errors import DelayIndexNotReady
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delay_index.delay_buckets import EVER, BucketLost
from pulsar_spark.storage.delay_index.delay_notes import NOT_INDEXED
from pulsar_spark.storage.delay_index.delayed import Due, has_delayed, in_order, read_delayed

AT_ONCE, MOST_AT_ONCE = 10_000, 32
"""Most entries, and files, that the round which numbers them reads itself."""
Found = TypeVar("Found")


class DelayIndex(IndexedEntries):
    """The delayed entries of a bundle: what the broker adds, drops and asks for. Unless *is_attended*, all is read at
    once."""

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
                self.next_times.pop(place, None)
            is_small = len(wanted) <= MOST_AT_ONCE and sum(run.entries for run in wanted) <= AT_ONCE
            if is_small or not self.is_attended:
                self.head.add_runs(place, wanted, read_delayed(state.topic.path, wanted, state.chunks(partition)))
            else:
                first, last = wanted[0].first_position, wanted[-1].last_position
                known.pending.append(Pending(first, last, wanted, min(map(earliest_due, wanted))))
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
        self._forget({topic_id})

    def retain(self, topic_ids: Collection[str]) -> None:
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
            since, found = self.next_times.get(place, (EVER, None))
            if since <= after and (found is None or after < found):
                return found
            due: list[int | None] = [max(each.earliest, after + 1) for each in self.pending(place)]
            is_lasting = not due
            due += [self._without_lost(lambda: self.buckets.next_due(place, after))]
            due += [head.next_due(place, after) for head in self.heads(place)]
            found = min((each for each in due if each is not None), default=None)
            if is_lasting and not self.pending(place):
                self.next_times[place] = after, found
            return found

    def due(self, topic_id: str, partition: int, after: int, until: int) -> Due:
        """Entries with *after* < deliver time <= *until*, in order. :class:`DelayIndexNotReady` if some are not
        indexed."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            parts = []
            if place is not None:
                parts = [self._without_lost(lambda: self.buckets.due(place, after, until))]
                parts += [part for head in self.heads(place) for part in head.due(place, after, until)]
                self._check_ready(place, after, until)
        return in_order(parts)

    def count(self, topic_id: str, partition: int, after: int, until: int | None = None) -> int:
        """The number of entries of :meth:`due`; without *until*, of all indexed ones after *after*."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            if place is None:
                return 0
            counted = self._without_lost(lambda: self.buckets.count(place, after, until))
            if until is not None:
                self._check_ready(place, after, until)
            return counted + sum(head.count(place, after, until) for head in self.heads(place))

    def ready_until(self, topic_id: str, partition: int) -> int:
        """The instant up to which the index is complete."""
        with self.lock:
            place = self.places.find(topic_id, partition)
            pending = [] if place is None else self.pending(place)
            return min((each.earliest - 1 for each in pending), default=EVER)

    def is_whole(self, topic_id: str, partition: int) -> bool:
        return self.ready_until(topic_id, partition) == EVER

    def _without_lost(self, query: Callable[[], Found]) -> Found:
        """The result of *query* without buckets that it finds lost."""
        while True:
            try:
                return query()
            except BucketLost as lost:
                self.lose(lost)

    def _check_ready(self, place: int, after: int, until: int) -> None:
        ready = min((each.earliest - 1 for each in self.pending(place)), default=until)
        if ready < until and after < until:
            raise DelayIndexNotReady(
                f"the delay index of topic {str(self.known[place].topic.name)!r}, partition "
                f"{self.places.known[place].partition}, is being rebuilt, and ready up to {ready} "
                "us; the broker tries again"
            ) from OSError(errno.EAGAIN, "not indexed yet")
