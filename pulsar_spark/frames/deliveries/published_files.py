"""Read delivered messages from the files in which they were published, without Delta.

Runs of ``ledgers`` name the files. The meant rows are passed as arrays, so that deliveries share compiled code (see
transforms.stretches). This works for few unchanged files, whole entries, and one redelivery count;
storage.entries.slices reads the rest."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.lost import is_as_published
from pulsar_spark.storage.entries.slices import PositionRange, by_partition
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import DELIVERED, MESSAGES
from pulsar_spark.transforms.stretches import Stretches, numbers

MOST_DIRECT_FILES = 32
"""Above this number of files Spark lists them with a job."""
MOST_BORDERS = 8
"""The most comparisons per row; with more stretches a join is as fast."""
_BLOCK_BITS, _MOST_BOUNDS = 17, 8
"""Bounds are rounded to blocks of this many entries, about a row group."""
_READER_OPTIONS = {"parquet.filter.dictionary.enabled": "false"}
"""Bounds of entry ids are decided by statistics and pages; reading dictionaries of ascending numbers would only cost
time."""
_PLAIN_NAME = re.compile(r"[\w.=-]+")
_GLOB = re.compile(r"[\[\]{}*?\\]")


class _Part(NamedTuple):
    partition: int
    run: Run
    firsts: np.ndarray
    lasts: np.ndarray

    @property
    def name(self) -> str:
        return self.run.path.rpartition("/")[2]

    @property
    def is_one_stretch(self) -> bool:
        return bool((self.firsts[1:] == self.lasts[:-1] + 1).all())

    @property
    def is_whole(self) -> bool:
        meant = int(self.firsts[0]), int(self.lasts[-1])
        return self.is_one_stretch and meant == (self.run.first_entry_id, self.run.last_entry_id)


def read_published(
    spark: SparkSession,
    topic: Topic,
    ledgers: LedgerIndex,
    ranges: Iterable[PositionRange],
    columns: Sequence[str] | None,
    with_payload: bool,
    *,
    with_chunks: bool,
    is_rough: bool = False,
) -> DataFrame | None:
    """The messages of *ranges* as storage.entries.slices.read_pieces gives them; None if only that can read them. With
    *is_rough* also some between the ranges, so that there may be as many ranges as a scan's bounds."""
    ranges = list(ranges)
    if len({(range_.redelivery_count, range_.ack_set) for range_ in ranges}) != 1 or ranges[0].ack_set is not None:
        return None
    parts = _parts(topic, ledgers, ranges)
    if parts is None:
        return None
    place = _Place(parts, is_rough)
    if not is_rough and place.stretches.most_borders > MOST_BORDERS:
        return None
    reader = spark.read.schema(from_arrow_schema(MESSAGES.schema)).options(basePath=str(topic.path), **_READER_OPTIONS)
    messages = reader.parquet(*(f"{topic.path}/{part.run.path}" for part in parts))
    around = _just_around(parts) if is_rough else _around(parts)
    if around is not None:
        messages = messages.filter(around)
    if not with_chunks:
        messages = messages.filter(F.col("uuid").isNull() | F.col("batch_index").isNotNull())
    names = [name for name in columns or DELIVERED if (with_payload or name != "payload") and name != "partition"]
    if not all(_is_whole_file(topic, ledgers, part) for part in parts):
        messages = messages.filter(place.is_in)
    return messages.select(
        *names,
        "partition",
        place.ledger_id.alias("ledger_id"),
        place.position.alias("position"),
        F.lit(ranges[0].redelivery_count).alias("redelivery_count"),
    )


def _parts(topic: Topic, ledgers: LedgerIndex, ranges: Sequence[PositionRange]) -> list[_Part] | None:
    """The entries that are meant of each file; None if the files cannot be read directly."""
    parts: list[_Part] = []
    for partition, of_partition in by_partition(ranges).items():
        spans = [(each.first, each.last) for each in of_partition]
        for run, stretches in ledgers.spans_of(topic.topic_id, partition, spans):
            if len(parts) == MOST_DIRECT_FILES or not is_as_published(topic.path, run):
                return None
            firsts, lasts = np.array([*stretches], np.int64).T - run.to_position
            parts.append(_Part(partition, run, firsts, lasts))
    are_plain = all(_is_found_by_path(topic, part.run) for part in parts)
    is_one_run_each = len({(part.partition, part.name) for part in parts}) == len(parts)
    return parts if parts and are_plain and is_one_run_each else None


def _is_found_by_path(topic: Topic, run: Run) -> bool:
    """Whether Spark finds the file of *run* by its path, and its name and partition."""
    folders, _, name = run.path.rpartition("/")
    is_found = not topic.partitions or "/" not in folders
    return is_found and bool(_PLAIN_NAME.fullmatch(name)) and not _GLOB.search(str(topic.path))


def _is_whole_file(topic: Topic, ledgers: LedgerIndex, part: _Part) -> bool:
    run = part.run
    if not part.is_whole:
        return False
    end = ledgers.end(topic.topic_id, part.partition)
    around = max(run.first_position - 1, 0), min(run.last_position + 1, end - 1)
    return [each.path for each in ledgers.runs(topic.topic_id, part.partition, *around)].count(run.path) == 1


def _around(parts: Sequence[_Part]) -> Column | None:
    """Bounds by which Parquet can skip row groups; few and round, because they are numbers in the code."""
    meant = _blocks((part.firsts[0], part.lasts[-1]) for part in parts)
    if meant == _blocks((part.run.first_entry_id, part.run.last_entry_id) for part in parts):
        return None
    if len(meant) > _MOST_BOUNDS:
        meant = [(meant[0][0], meant[-1][1])]
    return _is_between((first << _BLOCK_BITS, (last + 1 << _BLOCK_BITS) - 1) for first, last in meant)


def _just_around(parts: Sequence[_Part]) -> Column | None:
    """Bounds by which Parquet can skip pages; None for a few stretches, for which rounded bounds do."""
    bounds = [pair for part in parts for pair in zip(part.firsts.tolist(), part.lasts.tolist())]
    return _around(parts) if len(bounds) <= _MOST_BOUNDS else _is_between(bounds)


def _is_between(bounds: Iterable[tuple[int, int]]) -> Column:
    return F.expr(" or ".join(f"entry_id between {first} and {last}" for first, last in bounds))


def _blocks(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge *spans* of entry ids into disjoint, not adjoining blocks (first, last), in order.

    >>> _blocks([(1 << 33, 1 << 33), (200_000, 200_000), (5, 9)])
    [(0, 1), (65536, 65536)]
    """
    found: list[tuple[int, int]] = []
    for first, last in sorted((int(first) >> _BLOCK_BITS, int(last) >> _BLOCK_BITS) for first, last in spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


class _Place:
    """The place of a row on one axis, on which the meant entries of all files lie side by side."""

    def __init__(self, parts: Sequence[_Part], is_rough: bool):
        self._names = sorted({part.name for part in parts})
        self._partitions = sorted({part.partition for part in parts})
        firsts, lasts = (np.zeros(len(self._names) * len(self._partitions), np.int64) for _ in range(2))
        lasts -= 1
        to_place, to_position, ledger_ids = (np.zeros(len(firsts), np.int64) for _ in range(3))
        size, stretches = 0, []
        for part in parts:
            at = self._partitions.index(part.partition) * len(self._names) + self._names.index(part.name)
            firsts[at], lasts[at] = part.firsts[0], part.lasts[-1]
            to_place[at], to_position[at] = size - firsts[at], part.run.to_position
            ledger_ids[at] = part.run.ledger_id
            stretches.append((part.firsts + to_place[at], part.lasts + to_place[at]))
            size += int(lasts[at] - firsts[at]) + 1
        self.stretches = Stretches(size, *(np.concatenate(each) for each in zip(*stretches)))
        self._file = self._number_of_file()
        entry_id = F.col("entry_id")
        is_between = entry_id.between(self._of_file(firsts), self._of_file(lasts))
        self.is_in = is_between
        if not is_rough and not all(part.is_one_stretch for part in parts):
            self.is_in &= self.stretches.holds(entry_id + self._of_file(to_place))
        self.ledger_id, self.position = self._of_file(ledger_ids), entry_id + self._of_file(to_position)

    def _number_of_file(self) -> Column:
        """The number of the row's file; null or negative for other files."""
        name = F.array_position(F.array(*map(F.lit, self._names)), F.col("_metadata.file_name")) - 1
        if len(self._partitions) == 1:
            return name
        partition = F.array_position(numbers(np.array(self._partitions)), F.col("partition").cast("bigint")) - 1
        return partition * len(self._names) + name

    def _of_file(self, values: np.ndarray) -> Column:
        return F.get(numbers(values), self._file.cast("int"))
