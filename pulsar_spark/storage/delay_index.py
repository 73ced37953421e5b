"""The delay index of a bundle: which entries wait for their deliver time, in order of it, on disk.

TODO
"""

from collections.abc import Iterator

from pulsar_spark.storage.delay_buckets import BucketLost, Buckets, Segments
from pulsar_spark.storage.delay_segments import Places
from pulsar_spark.storage.delay_table import NOT_INDEXED, DelayTable
from pulsar_spark.storage.delayed import NONE_DUE, Due, has_delayed, in_order, read_delayed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import ledgers_of_topic
from pulsar_spark.storage.topics import Topic

__all__ = ["NONE_DUE", "Due", "scheduled"]
PART_ENTRIES = 100_000
LAST = (1 << 63) - 1


def scheduled(
    layout: Layout, topic: Topic, partition: int, after: int, until: int | None = None, *, most: int = PART_ENTRIES
) -> Iterator[Due]:
    """The delayed entries of a topic partition with *after* < deliver time <= *until*, in order of (deliver time,
    position), in parts of about *most* entries. For whoever looks from outside, without a broker: from the buckets,
    and from the topic's files what no bucket holds yet. What is gone from the topic may be among them."""
    until = LAST if until is None else until
    while after < until:
        places = Places()
        loaded = DelayTable(layout).load(places)
        place = places.number(topic.topic_id, partition)
        is_lost = any(lost.places is None or place in lost.places for lost in loaded.lost)
        indexed = NOT_INDEXED if is_lost else loaded.indexed.get(place, NOT_INDEXED)
        buckets = Buckets(Segments(places), [] if is_lost else loaded.buckets, {place: indexed.since})
        ledgers = ledgers_of_topic(layout, topic.topic_id).get(partition)
        runs = [run for run in ledgers.runs if has_delayed(run)] if ledgers else []
        others = [run for run in runs if not indexed.holds(run.first_position, run.last_position)]
        unsealed = in_order(read_delayed(topic.path, [run]).between(after, until) for run in others)
        try:
            for last, part in buckets.parts(place, after, until, most):
                yield in_order([part, unsealed.between(after, last)])
                after = last
        except BucketLost:  # merged with others since the table was opened: there it is again
            continue
