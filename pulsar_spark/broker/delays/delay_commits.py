"""Commits of the delay index: seal the head, drop and merge buckets. For one thread at a time."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from pulsar_spark.broker.delays.delay_head import LEAST, Head
from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.delays.indexed_entries import Pending
from pulsar_spark.protocol.delays.delays import buckets_to_merge
from pulsar_spark.storage.delay_index.delay_buckets import EVER, Bucket
from pulsar_spark.storage.delay_index.delay_merge import merge_buckets, write_entries
from pulsar_spark.storage.delay_index.delay_notes import NewBucket
from pulsar_spark.storage.store.store import AnyPath

GRACE_SECONDS = 600.0
"""How long a file that left the table stays for its readers."""


class DelayCommits:
    def __init__(self, index: DelayIndex, max_num_buckets: int):
        self.index, self._most = index, max_num_buckets
        self._gone: list[tuple[float, AnyPath]] = []

    def retire(self, files: Sequence[AnyPath]) -> None:
        """Delete files without a commit after :data:`GRACE_SECONDS`."""
        self._gone += [(time.monotonic() + GRACE_SECONDS, path) for path in files]

    def seal(self, *, is_forced: bool = False) -> bool:
        """Make a bucket of a full head, or any if *is_forced*; returns whether it did."""
        index = self.index
        with index.lock:
            head = index.head
            if not head or not (head.is_full or is_forced):
                return False
            index.sealing, index.head = head, Head()
        try:
            new = write_entries(index.table, head.everything(index.places.ranks()), index.places)
            self.commit(new, dict.fromkeys(head.stretches, ()), is_sealing=True)
        finally:
            with index.lock:
                if index.sealing is head:  # it got into no bucket: seal it later
                    index.head.take(head)
                    index.sealing = None
        return True

    def commit(
        self,
        new: NewBucket | None,
        done: Mapping[int, Sequence[Pending]],
        *,
        gone: Sequence[Bucket] = (),
        since: int | None = None,
        is_sealing: bool = False,
    ) -> None:
        """Commit bucket *new*, which indexes the pending runs *done* by topic partition, and remove the buckets *gone*.
        With *since*, only buckets from that number on count for these."""
        index = self.index
        with index.lock:
            index.unindexed, doomed = set(), set(index.doomed)
            done = {place: pending for place, pending in done.items() if place in index.known}
            indexed = index.indexed | {
                place: index.indexed_with(place, pending, since) for place, pending in done.items()
            }
            retired = index.table.paths_of([*(old.number for old in gone), *doomed])
        bucket = index.table.commit(new, [*(old.number for old in gone), *doomed], indexed, index.places)
        with index.lock:
            left = [old for old in index.buckets.buckets if all(old is not each for each in gone)]
            again = index.unindexed & indexed.keys()
            index.replace_buckets(left + ([bucket] if bucket else []), indexed)
            for place, pending in done.items():
                index.done(place, pending)
            if is_sealing:
                index.sealing = None
            index.unindex(again)
            index.doomed -= doomed
            index.is_dropping = index.is_dropping or since is not None
        self.retire(retired)

    def drop(self) -> bool:
        index = self.index
        with index.lock:
            if not index.is_dropping or index.table.version < 0:
                return False
            index.is_dropping = False
            needed = self._needed()
            gone = [bucket for bucket in index.buckets.buckets if not needed(bucket, bucket.places, bucket.lasts).any()]
        if gone or index.doomed:
            self.commit(None, {}, gone=gone)
        return bool(gone)

    def merge(self) -> bool:
        index = self.index
        with index.lock:
            buckets, needed = index.buckets.buckets, self._needed()
        if len(buckets) <= self._most:
            return False
        chosen = buckets_to_merge([each.entries for each in buckets], [int(each.firsts.min()) for each in buckets])
        if chosen is None:
            return False
        gone = buckets[chosen[0] : chosen[1] + 1]
        new = merge_buckets(
            index.table, gone, index.places, lambda bucket, found: needed(bucket, found.places, found.due.times)
        )
        self.commit(new, {}, gone=gone)
        return True

    def _needed(self) -> Callable[[Bucket, np.ndarray, np.ndarray], np.ndarray]:
        """Returns which entries of a bucket, by place and deliver time, are needed."""
        index, numbers = self.index, range(len(self.index.places))
        since = np.array([index.buckets.since.get(place, EVER) for place in numbers], np.int64)
        dropped = np.array([index.dropped.get(place, LEAST) for place in numbers], np.int64)
        return lambda bucket, places, times: (bucket.number >= since[places]) & (times > dropped[places])

    def remove(self) -> bool:
        now = time.monotonic()
        for _, path in (stale for stale in self._gone if stale[0] <= now):
            with suppress(FileNotFoundError):
                path.unlink()
        self._gone = [stale for stale in self._gone if stale[0] > now]
        return False
