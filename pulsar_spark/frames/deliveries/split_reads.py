"""Read once what one round delivered by lane to several consumers of a session.

With random keys each consumer would read all rows to find its own. Instead the first reader splits the rows into one
Parquet file per consumer and thread (see row_split), in a temporary folder (see split_folder); the others wait. A
consumer's files are deleted once it has answered.

This needs a session in this process, unchanged files, single-message entries, no chunks, one redelivery count, and
enough rows to pay off. If splitting fails, each consumer reads by itself.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.frames.deliveries.lane_deliveries import LaneRange
from pulsar_spark.frames.deliveries.row_split import PLACE, SPLIT_SCHEMA, Job, Jobs, Splitter, same_in_all, with_values
from pulsar_spark.frames.deliveries.split_folder import SplitFolder
from pulsar_spark.storage.entries.lost import is_as_published
from pulsar_spark.storage.entries.topic_files import READ_ERRORS
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.session import runs_here
from pulsar_spark.storage.store.store import AnyPath, store_of
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import DELIVERED

LEAST_ENTRIES = 100_000
"""The fewest entries, of all consumers together, that are worth a split."""
MOST_BYTES = 4 << 30
"""The most bytes to split, uncompressed, as footers state; also at most half of the free disk."""

Dealt = Callable[[], Sequence[tuple[str, LaneRange]]]
"""Gives what a round dealt by lane on one cursor: consumer and range."""
RoundKey = tuple[str, str, int]
"""Topic id, subscription and round."""


class _SplitKey(NamedTuple):
    """What consumers must have in common to share a split."""

    spark: int
    columns: tuple[str, ...]


@dataclass
class _Round:
    """One round's deliveries to consumers of this process; those in *open* still need their part."""

    dealt: dict[int, Dealt] = field(default_factory=dict)
    """By partition."""
    open: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    folder: SplitFolder | None = None
    split_key: _SplitKey | None = None
    ranges: dict[str, set[LaneRange]] = field(default_factory=dict)
    """The ranges of each consumer for whom rows were split."""
    same: Mapping[str, object] = field(default_factory=dict)
    """Columns that the files leave out, because all rows have one value."""


_lock = threading.Lock()
_members: dict[str, int] = {}
"""The session of each consumer of this process, by consumer id."""
_rounds: dict[RoundKey, _Round] = {}


def enter(consumer_id: str, spark: SparkSession) -> None:
    """Register a consumer of this process."""
    with _lock:
        _members[consumer_id] = id(spark)


def note_delivery(key: RoundKey, partition: int, consumer_id: str, dealt: Dealt) -> None:
    """Note that a round delivered by lane to a consumer; *dealt* gives what it dealt to all on this partition."""
    with _lock:
        if consumer_id in _members:
            found = _rounds.setdefault(key, _Round())
            found.dealt.setdefault(partition, dealt)
            found.open.add(consumer_id)


def release_up_to(consumer_id: str, last_round: int) -> None:
    """Release a consumer's parts of rounds up to *last_round*."""
    _release(consumer_id, lambda key: key[2] <= last_round)


def leave(consumer_id: str) -> None:
    """Remove a consumer that left."""
    with _lock:
        _members.pop(consumer_id, None)
    _release(consumer_id, lambda key: True)


def _release(consumer_id: str, is_selected: Callable[[RoundKey], bool]) -> None:
    with _lock:
        found = [(key, each) for key, each in _rounds.items() if consumer_id in each.open and is_selected(key)]
        for key, each in found:
            each.open.discard(consumer_id)
            if not each.open:
                del _rounds[key]
    for _, each in found:
        with each.lock:
            if each.folder is not None:
                each.folder.remove(consumer_id if each.open else None)


def read_split(
    spark: SparkSession,
    topic: Topic,
    ledgers: LedgerIndex,
    subscription: str,
    consumer_id: str,
    ranges: Sequence[LaneRange],
    columns: Sequence[str] | None,
    with_payload: bool,
) -> DataFrame | None:
    """The messages of all of a consumer's *ranges* as :func:`lane_frames.read_lane` gives them; None if they are not
    split."""
    if not runs_here(spark) or not store_of(topic.path).is_local:
        return None
    names = [name for name in columns or DELIVERED if (with_payload or name != "payload") and name not in PLACE]
    counts = {each.position_range.redelivery_count for each in ranges}
    if len(counts) > 1:
        return None
    split_key, parts = _SplitKey(id(spark), tuple(names)), []
    for number in {each.round for each in ranges}:
        with _lock:
            found = _rounds.get((topic.topic_id, subscription, number))
        mine = {each for each in ranges if each.round == number}
        folder = None if found is None else _folder_of(found, topic, ledgers, consumer_id, split_key, mine)
        if folder is None:
            return None
        parts.append(_rows_in(spark, folder, found.same).select(*names, *PLACE))
    return reduce(DataFrame.unionByName, parts).withColumn("redelivery_count", F.lit(counts.pop()))


def _rows_in(spark: SparkSession, folder: AnyPath, same: Mapping[str, object]) -> DataFrame:
    schema = from_arrow_schema(SPLIT_SCHEMA)
    rows = spark.read.schema(schema).parquet(str(folder))
    return rows.withColumns({name: F.lit(value).cast(schema[name].dataType) for name, value in same.items()})


def _folder_of(
    of_round: _Round, topic: Topic, ledgers: LedgerIndex, consumer_id: str, split_key: _SplitKey, mine: set[LaneRange]
) -> AnyPath | None:
    """The folder with a consumer's part of a round, or None; the first caller splits the round."""
    with of_round.lock:
        if of_round.split_key is None:
            of_round.split_key = split_key
            _split_round(of_round, topic, ledgers, split_key)
        is_there = of_round.folder is not None and of_round.ranges.get(consumer_id) == mine
        return of_round.folder.path / consumer_id if is_there and of_round.split_key == split_key else None


def _split_round(of_round: _Round, topic: Topic, ledgers: LedgerIndex, split_key: _SplitKey) -> None:
    with _lock:
        known = {consumer_id for consumer_id, spark in _members.items() if spark == split_key.spark}
    ranges: dict[str, set[LaneRange]] = {}
    for dealt in list(of_round.dealt.values()):
        for consumer_id, range_ in dealt():
            if consumer_id in known:
                ranges.setdefault(consumer_id, set()).add(range_)
    everything = [range_ for each in ranges.values() for range_ in each]
    if len(ranges) < 2 or sum(range_.entries for range_ in everything) < LEAST_ENTRIES or not _are_plain(everything):
        return
    with _lock:  # consumers that have not received it yet need their part, too
        of_round.open.update(ranges.keys() & _members.keys())
    jobs = _jobs(topic, ledgers, everything)
    if jobs is None:
        return
    try:
        folder = SplitFolder(list(ranges))
    except OSError:
        return
    try:
        Splitter(topic.path, ranges, split_key.columns, folder.path).run(jobs)
    except BaseException as error:
        folder.remove()
        if isinstance(error, READ_ERRORS):
            return
        raise
    of_round.folder, of_round.ranges, of_round.same = folder, ranges, jobs.same


def _are_plain(ranges: Sequence[LaneRange]) -> bool:
    kinds = {(each.hashes.axis, each.position_range.redelivery_count, each.is_batch) for each in ranges}
    return len(kinds) == 1 and not any(each.is_batch for each in ranges)


def _jobs(topic: Topic, ledgers: LedgerIndex, ranges: Sequence[LaneRange]) -> Jobs | None:
    """The row groups to split; None if they cannot be split."""
    jobs, groups = [], []
    for partition in sorted({each.partition for each in ranges}):
        first = min(each.first for each in ranges if each.partition == partition)
        last = max(each.last for each in ranges if each.partition == partition)
        for run in ledgers.runs(topic.topic_id, partition, first, last):
            if run.may_have_chunks or run.batch_size != 1 or not is_as_published(topic.path, run):
                return None
            footer = pq.read_metadata(f"{topic.path}/{run.path}")
            names = frozenset(footer.schema.to_arrow_schema().names)
            jobs += [Job(partition, run, group, names) for group in range(footer.num_row_groups)]
            groups += map(footer.row_group, range(footer.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    if size > min(MOST_BYTES, shutil.disk_usage(tempfile.gettempdir()).free // 2):
        return None
    columns = frozenset(name for group in groups for name in with_values(group))
    return Jobs(jobs, columns, same_in_all(jobs, groups))
