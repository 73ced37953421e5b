"""The delay index of a bundle: delayed entries by deliver time, on disk, for all subscriptions (semantics 5.7 to 5.19,
decisions 0.21 and 0.24; design 10).

It holds each run's entries with a deliver time after the run's ``delayed_after``, also deleted ones. Unlike
BucketDelayedDeliveryTracker:

- The open bucket is in memory, for all topics, and is sealed by size (5.8). A large publish is a bucket.
- A segment is a row group, cut by number of entries and not by time (5.9).
- Merging follows 5.14, a segment at a time. Unneeded buckets are removed by one commit (5.10). 5.15's defects are
  absent.
- There are no bitmaps (5.11): cursors know which entries were promoted and acknowledged.

Lost or damaged buckets are rebuilt from the topics, whose affected partitions are not ready until then.
"""

from collections.abc import Iterator

from pulsar_spark.storage.chunks.chunk_groups import chunks_of
from pulsar_spark.storage.delay_index.delay_buckets import BucketLost, Buckets, Segments
from pulsar_spark.storage.delay_index.delay_notes import NOT_INDEXED
from pulsar_spark.storage.delay_index.delay_segments import Places
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from pulsar_spark.storage.delay_index.delayed import Due, in_order, read_delayed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.needed_runs import delayed_runs
from pulsar_spark.storage.topics.topics import Topic

PART_ENTRIES = 100_000


class IndexReader:
    """Reads a topic partition's delayed entries without a broker, as of the first call; deleted ones may be among them.

    Entries that are in no bucket come from the topic's files. :class:`BucketLost` if a bucket is damaged.
    """

    def __init__(self, layout: Layout, topic: Topic, partition: int):
        self._layout, self._topic, self._partition = layout, topic, partition
        self._opened: tuple[Buckets, int, Due] | None = None
        self._lost: set[int] = set()

    def between(self, after: int, until: int, most: int = PART_ENTRIES) -> Iterator[Due]:
        """The entries with *after* < deliver time <= *until*, in order, in parts of about *most*."""
        while after < until:
            buckets, place, unsealed = self._open()
            try:
                for last, part in buckets.parts(place, after, until, most):
                    yield in_order([part, unsealed.between(after, last)])
                    after = last
            except BucketLost as lost:
                self._open_again(lost)

    def count(self, after: int, until: int) -> int:
        while True:
            buckets, place, unsealed = self._open()
            try:
                return buckets.count(place, after, until) + len(unsealed.between(after, until))
            except BucketLost as lost:
                self._open_again(lost)

    def _open_again(self, lost: BucketLost) -> None:
        """Open the table again, because the bucket may be merged; raise if it is lost twice."""
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
