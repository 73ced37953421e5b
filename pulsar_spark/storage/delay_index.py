"""The delay index of a bundle: which entries wait for their deliver time, in order of it, on disk.

TODO
"""

from collections.abc import Iterator
from typing import NamedTuple

from pulsar_spark.storage.delay_buckets import BucketLost, Buckets, Segments
from pulsar_spark.storage.delay_segments import Places
from pulsar_spark.storage.delay_table import NOT_INDEXED, DelayTable
from pulsar_spark.storage.delayed import NONE_DUE, Due, has_delayed, in_order, read_delayed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import ledgers_of_topic
from pulsar_spark.storage.topics import Topic

__all__ = ["NONE_DUE", "Due", "IndexReader", "read_buckets", "scheduled"]
PART_ENTRIES = 100_000
LAST = (1 << 63) - 1


def scheduled(
    layout: Layout, topic: Topic, partition: int, after: int, until: int | None = None, *, most: int = PART_ENTRIES
) -> Iterator[Due]:
    """The delayed entries of a topic partition with *after* < deliver time <= *until*, in order of (deliver time,
    position), in parts of about *most* entries."""
    yield from IndexReader(layout, topic, partition).between(after, LAST if until is None else until, most)


class IndexReader:
    """The delayed entries of a topic partition, for whoever looks from outside, without a broker: from the buckets, and
    from the topic's files what no bucket holds yet; as they are when it is first asked. What is gone from the topic may
    be among them."""

    def __init__(self, layout: Layout, topic: Topic, partition: int):
        self._layout, self._topic, self._partition = layout, topic, partition
        self._opened: tuple[Buckets, int, Due] | None = None

    def between(self, after: int, until: int, most: int = PART_ENTRIES) -> Iterator[Due]:
        """Those with *after* < deliver time <= *until*, in order of (deliver time, position), in parts of about *most*
        entries."""
        while after < until:
            buckets, place, unsealed = self._open()
            try:
                for last, part in buckets.parts(place, after, until, most):
                    yield in_order([part, unsealed.between(after, last)])
                    after = last
            except BucketLost:  # merged with others since the table was opened: there it is again
                self._opened = None

    def count(self, after: int, until: int) -> int:
        """How many those are, by what is known of whole segments."""
        while True:
            buckets, place, unsealed = self._open()
            try:
                return buckets.count(place, after, until) + len(unsealed.between(after, until))
            except BucketLost:
                self._opened = None

    def _open(self) -> tuple[Buckets, int, Due]:
        """The buckets, the number of the topic partition in them, and the entries that none of them holds."""
        if self._opened is None:
            places = Places()
            loaded = DelayTable(self._layout).load(places)
            place = places.number(self._topic.topic_id, self._partition)
            is_lost = any(lost.places is None or place in lost.places for lost in loaded.lost)
            indexed = NOT_INDEXED if is_lost else loaded.indexed.get(place, NOT_INDEXED)
            buckets = Buckets(Segments(places), [] if is_lost else loaded.buckets, {place: indexed.since})
            ledgers = ledgers_of_topic(self._layout, self._topic.topic_id).get(self._partition)
            runs = [run for run in ledgers.runs if has_delayed(run)] if ledgers else []
            others = [run for run in runs if not indexed.holds(run.first_position, run.last_position)]
            self._opened = buckets, place, in_order(read_delayed(self._topic.path, [run]) for run in others)
        return self._opened


class BucketSize(NamedTuple):
    """How large a bucket of the index is; deliver times in microseconds since 1970."""

    number: int
    entries: int
    first_time: int
    last_time: int
    size: int


def read_buckets(layout: Layout) -> list[BucketSize]:
    """The buckets that a bundle's delay index has now; none where there is no index."""
    return [
        BucketSize(
            bucket.number, bucket.entries, int(bucket.firsts.min()), int(bucket.lasts.max()), sum(bucket.files.values())
        )
        for bucket in DelayTable(layout).load(Places()).buckets
        if bucket.entries
    ]
