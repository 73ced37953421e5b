"""The delay index of a bundle: the delayed entries in order of deliver time, on disk, for all subscriptions (semantics
5.7 to 5.19, decisions 0.21 and 0.24; design 10).

It is a function of what was published and of ``ledgers``: it holds each run's entries whose deliver time is after the
run's ``delayed_after``, including those deleted since. Its answers do not depend on how buckets were written, merged or
rebuilt. It follows BucketDelayedDeliveryTracker with these differences:

- The in-memory head is also the open bucket. It holds entries of small publishes of all topics, and is sealed by size,
  not by ledger (5.8). Spark writes a large publish as a bucket of its own.
- A segment is a row group with a fixed number of entries, without a time step (5.9). Its statistics, in memory, say
  when its first and last entries are due.
- Buckets are merged by the rule of 5.14, a segment at a time. A bucket that nobody needs is removed with one commit
  (5.10). The defects of 5.15 do not exist.
- There are no bitmaps (5.11): cursors know what was promoted and acknowledged.

A crash leaves only files that no commit names; the next start removes them and reads those runs again. A bucket that is
missing or damaged is rebuilt from the topics, and until then its topic partitions are not ready. Only if VACUUM removed
the file of deleted entries does the rebuilt index have fewer entries than before.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pulsar_spark.protocol.message_id import MAX_LONG
from pulsar_spark.storage.chunks.chunk_groups import chunks_of
from pulsar_spark.storage.delay_index.delay_buckets import BucketLost, Buckets, Segments
from pulsar_spark.storage.delay_index.delay_notes import NOT_INDEXED
from pulsar_spark.storage.delay_index.delay_segments import Places
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from pulsar_spark.storage.delay_index.delayed import NONE_DUE, Due, in_order, read_delayed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.needed_runs import delayed_runs
from pulsar_spark.storage.topics.topics import Topic

__all__ = ["NONE_DUE", "Due", "IndexReader", "read_buckets", "scheduled"]
PART_ENTRIES = 100_000


def scheduled(
    layout: Layout, topic: Topic, partition: int, after: int, until: int | None = None, *, most: int = PART_ENTRIES
) -> Iterator[Due]:
    """The delayed entries of a topic partition with *after* < deliver time <= *until*, in order of (deliver time,
    position), in parts of about *most* entries."""
    yield from IndexReader(layout, topic, partition).between(after, MAX_LONG if until is None else until, most)


class IndexReader:
    """Reads a topic partition's delayed entries without a broker: from buckets, and from the topic's files what is in
    none.

    It shows the state at the first call, and may contain entries that were deleted from the topic. :class:`BucketLost`
    if a bucket is damaged and not rebuilt yet.
    """

    def __init__(self, layout: Layout, topic: Topic, partition: int):
        self._layout, self._topic, self._partition = layout, topic, partition
        self._opened: tuple[Buckets, int, Due] | None = None
        self._lost: set[int] = set()

    def between(self, after: int, until: int, most: int = PART_ENTRIES) -> Iterator[Due]:
        """The entries of :func:`scheduled`."""
        while after < until:
            buckets, place, unsealed = self._open()
            try:
                for last, part in buckets.parts(place, after, until, most):
                    yield in_order([part, unsealed.between(after, last)])
                    after = last
            except BucketLost as lost:
                self._open_again(lost)

    def count(self, after: int, until: int) -> int:
        """How many entries have *after* < deliver time <= *until*; whole segments are counted by statistics."""
        while True:
            buckets, place, unsealed = self._open()
            try:
                return buckets.count(place, after, until) + len(unsealed.between(after, until))
            except BucketLost as lost:
                self._open_again(lost)

    def _open_again(self, lost: BucketLost) -> None:
        """Open the table again, in case the bucket was merged; raise if it is lost again."""
        if lost.bucket.number in self._lost:
            raise lost
        self._lost.add(lost.bucket.number)
        self._opened = None

    def _open(self) -> tuple[Buckets, int, Due]:
        """The buckets, the number of the topic partition in them, and the entries that are in no bucket."""
        if self._opened is None:
            places = Places()
            loaded = DelayTable(self._layout).load(places)
            place = places.number(self._topic.topic_id, self._partition)
            is_lost = any(lost.places is None or place in lost.places for lost in loaded.lost)
            indexed = NOT_INDEXED if is_lost else loaded.indexed.get(place, NOT_INDEXED)
            buckets = Buckets(Segments(places), [] if is_lost else loaded.buckets, {place: indexed.since})
            delayed = delayed_runs(self._layout, self._topic.topic_id, self._partition)
            others = [run for run in delayed if not indexed.holds(run.first_position, run.last_position)]
            chunks = chunks_of(self._layout, self._topic, self._partition, others)
            self._opened = buckets, place, read_delayed(self._topic.path, others, chunks)
        return self._opened


class BucketSize(NamedTuple):
    """The size of a bucket of the index; deliver times in microseconds since 1970."""

    number: int
    entries: int
    first_time: int
    last_time: int
    size: int


def read_buckets(layout: Layout) -> list[BucketSize]:
    """The buckets of a bundle's delay index now; none without an index."""
    return [
        BucketSize(
            bucket.number, bucket.entries, int(bucket.firsts.min()), int(bucket.lasts.max()), sum(bucket.files.values())
        )
        for bucket in DelayTable(layout).load(Places()).buckets
        if bucket.entries
    ]
