"""The delay index of a bundle: which entries wait for their deliver time, in order of it, on disk, for all
subscriptions (semantics 5, decisions 0.21 and 0.24; design 10).

What is in it is a function of what was published and of ``ledgers``: of each run the entries whose deliver time lies
behind the run's ``delayed_after``, those too that were deleted since. It is asked for what came due between two
instants, and when the next entry is due, and says the same however its entries lie: in memory, in one bucket or in
twenty. So what promotion counts by its intervals of time stays what it was when buckets are merged, lost, or made anew.

**What became of Pulsar's parts** (BucketDelayedDeliveryTracker; semantics 5.7 to 5.19)

- The *shared in-memory head* and the *open bucket* are one (broker.delay_head): entries of small publishes, of all
  topics. There is no queue of the segments that are due next, because nobody pops entries: subscriptions read intervals
  of time, each at its own pace, and a segment that was read last is still in memory for the others.
- A *bucket* is a set of sealed files in order of (deliver time, topic, partition, position). It covers no range of
  ledgers (5.8): which positions are in buckets is said once for all of them, so a head is sealed when it is large, and
  a publish of any size is a bucket of its own, written by Spark.
- A *segment* is a row group, of so many entries (5.9). Its time step is left out: an interval that has few entries
  costs a row group's decoding, 3 ms, whatever time it spans.
- The *snapshot* of a bucket is the table: files once written are never changed, and one commit says which there are.
  Its metadata, the first and the last deliver time and the count of each topic partition in each segment, is a file
  beside the entries; with it in memory, 28 bytes for 32,768 entries of one topic partition, the next deliver time is
  known without a look at the disk, and what is read for an interval are the segments that it meets.
- *Merge*, to ``delayedDeliveryMaxNumBuckets``: the rule of 5.14 (protocol.delays), on buckets in the order in which
  they were written. They are read and written a segment at a time, so merging 10^8 entries takes no more memory than
  10^5. What nobody needs any more, or what belongs to topics that are gone, is left out; a bucket of which nothing is
  needed goes with one commit (5.10). 5.15's defects have nothing to be in.
- Pulsar's bitmaps of what is still in a bucket (5.11) have no counterpart: what was promoted, and what is acknowledged,
  cursors know.

**The table** (delay_table) holds entries, what is in segments, and what is indexed. **What a crash leaves:**

- While a head is sealed, buckets are merged or the index is made anew: files that no commit names. The next start
  removes them, and reads the runs of the head again, as they are in no bucket.
- While Spark writes a bucket: a folder of staged files, perhaps files that no commit names. The next start removes
  both; the runs are pending, and indexed again.
- Behind the commit: the new bucket counts, what it replaces does not. The next start removes what left the table.
- A file, the notes on a bucket or the log, lost by whomever: the rest, or a table that contradicts itself. The next
  start takes what was lost for never indexed, all of it where nobody can tell what it was. Bytes that changed are
  lost as well: pages have checksums, and the names of files say the rest (delay_files).

What is lost while a broker serves is found when it is read, and made again meanwhile; its topic partitions are not
ready before (broker.delay_index). Nothing comes early by it, and no number changes: the entries are the same. They are
not where the index is lost after entries were deleted *and* VACUUM took the file that had them: then a checkpoint has
fewer entries than it gave numbers, and what is known of them is kept as far as it is certain (broker.due_moves).

**Measured** on two cores shared with seven others' work (load 8 to 14), deliver times at random in a year. Bytes an
entry: 4.9, with a million keys 9.0 (6.2 and 10.3 if times were kept in microseconds). Indexing: 0.9 s of a core for
10^6 without Spark; by Spark 10^6 in 4.5 s and 10^7 in 36 s, the first job of a session 13 s and 101 s, where publishing
them, first as well, took 6 s and 50 s. 1,000 that come due of 10^7 in one bucket: 2 to 45 ms where segments are read,
else 0.1 ms; in ten buckets 20 to 170 ms and 0.8 ms. 100,000 of 10^7: 80 to 150 ms. The next deliver time: a
microsecond. A start: 46 ms for 10^7 in one bucket, 270 ms in ten. In memory of 10^7 are 11 kB of statistics and at most
64 MB of segments that were read.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pulsar_spark.protocol.message_id import MAX_LONG
from pulsar_spark.storage.chunk_groups import chunks_of
from pulsar_spark.storage.delay_buckets import BucketLost, Buckets, Segments
from pulsar_spark.storage.delay_notes import NOT_INDEXED
from pulsar_spark.storage.delay_segments import Places
from pulsar_spark.storage.delay_table import DelayTable
from pulsar_spark.storage.delayed import NONE_DUE, Due, in_order, read_delayed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.needed_runs import delayed_runs
from pulsar_spark.storage.topics import Topic

__all__ = ["NONE_DUE", "Due", "IndexReader", "read_buckets", "scheduled"]
PART_ENTRIES = 100_000


def scheduled(
    layout: Layout, topic: Topic, partition: int, after: int, until: int | None = None, *, most: int = PART_ENTRIES
) -> Iterator[Due]:
    """The delayed entries of a topic partition with *after* < deliver time <= *until*, in order of (deliver time,
    position), in parts of about *most* entries."""
    yield from IndexReader(layout, topic, partition).between(after, MAX_LONG if until is None else until, most)


class IndexReader:
    """The delayed entries of a topic partition, for whoever looks from outside, without a broker: from the buckets, and
    from the topic's files what no bucket holds yet; as they are when it is first asked. What is gone from the topic may
    be among them. :class:`BucketLost` where a bucket is damaged and no broker has made it again."""

    def __init__(self, layout: Layout, topic: Topic, partition: int):
        self._layout, self._topic, self._partition = layout, topic, partition
        self._opened: tuple[Buckets, int, Due] | None = None
        self._lost: set[int] = set()

    def between(self, after: int, until: int, most: int = PART_ENTRIES) -> Iterator[Due]:
        """Those with *after* < deliver time <= *until*, in order of (deliver time, position), in parts of about *most*
        entries."""
        while after < until:
            buckets, place, unsealed = self._open()
            try:
                for last, part in buckets.parts(place, after, until, most):
                    yield in_order([part, unsealed.between(after, last)])
                    after = last
            except BucketLost as lost:
                self._open_again(lost)

    def count(self, after: int, until: int) -> int:
        """How many those are, by what is known of whole segments."""
        while True:
            buckets, place, unsealed = self._open()
            try:
                return buckets.count(place, after, until) + len(unsealed.between(after, until))
            except BucketLost as lost:
                self._open_again(lost)

    def _open_again(self, lost: BucketLost) -> None:
        """A bucket that was merged with others since the table was opened is there again; one that is damaged is
        not."""
        if lost.bucket.number in self._lost:
            raise lost
        self._lost.add(lost.bucket.number)
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
            delayed = delayed_runs(self._layout, self._topic.topic_id, self._partition)
            others = [run for run in delayed if not indexed.holds(run.first_position, run.last_position)]
            chunks = chunks_of(self._layout, self._topic, self._partition, others)
            self._opened = buckets, place, read_delayed(self._topic.path, others, chunks)
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
