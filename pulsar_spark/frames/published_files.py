"""Reading what was delivered from the files it was published in.

A file that is as it was published needs no Delta to read: a run of ``ledgers`` names it. Delta would resolve the table
and, for each read, start a job to choose files by their statistics: 0.7 of 0.9 s of a processor's time that it takes to
plan one, with two files. Which of a file's rows are meant is told by arrays and no numbers in the code (see
transforms.stretches), so the consumers of a session, and one delivery after the other, run the code that was compiled
for the first.

All pages between the ends of what is meant are read, though in files in order of hash most are others'. Of 6 * 10^6
rows in two such files the 168,000 of one of 32 consumers lie in a hundred stretches a file; said to Parquet's reader
apart from the code, so that it asks for their pages alone, these took 1.7 s of a processor's time, where plainly
reading all rows takes 1.85 s. The rows of one of four took 2.0 to 2.6 s, and 35 s where the reader looked at
dictionaries, too.

Where all of each file is meant, as of a backlog handed out in large deliveries, no row is looked at: reading 10^7 rows
in three deliveries took 1.45 times as long as plainly reading them while each row's file was looked up by its name.

For few files that are all as published (a file with rows of several publishes is numbered as none), of entries of which
all messages are meant, delivered equally often; everything else is storage.slices' to read.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.lost import is_as_published
from pulsar_spark.storage.slices import DELIVERED, PositionRange, by_partition
from pulsar_spark.storage.topics import Topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.transforms.stretches import Stretches, numbers

MOST_FILES = 32
"""Spark lists more of them by a job."""
MOST_BORDERS = 8
"""Comparisons for each row; where stretches are so many that they lie closer together, a join is as quick."""
_BLOCK_BITS, _MOST_BOUNDS = 17, 8
"""Bounds are of whole blocks of so many entries, about as many as a row group has."""
_READER_OPTIONS = {"parquet.filter.dictionary.enabled": "false"}
"""Bounds of entry ids are looked up in a row group's statistics and pages. Its dictionary tells no more of numbers that
ascend, and to read it for each took 0.8 of 1.9 s for four of five million rows of a file."""
_PLAIN_NAME = re.compile(r"[\w.=-]+")
_GLOB = re.compile(r"[\[\]{}*?\\]")


class _Part(NamedTuple):
    """Entry ids *firsts* to *lasts* of a run."""

    partition: int
    run: Run
    firsts: np.ndarray
    lasts: np.ndarray

    @property
    def name(self) -> str:
        """Of the file, without its folders."""
        return self.run.path.rpartition("/")[2]

    @property
    def is_one_stretch(self) -> bool:
        return bool((self.firsts[1:] == self.lasts[:-1] + 1).all())

    @property
    def is_whole(self) -> bool:
        """Is all of its run meant?"""
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
    where: Column | None = None,
) -> DataFrame | None:
    """The messages of *ranges*, rows and columns as storage.slices.read_pieces gives them; None where it must be that
    which reads them."""
    ranges = list(ranges)
    if len({(held.redelivery_count, held.ack_set) for held in ranges}) != 1 or ranges[0].ack_set is not None:
        return None
    parts = _parts(topic, ledgers, ranges)
    if parts is None:
        return None
    place = _Place(parts)
    if place.stretches.most_borders > MOST_BORDERS:
        return None
    reader = spark.read.schema(from_arrow_schema(MESSAGES.schema)).options(basePath=str(topic.path), **_READER_OPTIONS)
    messages = reader.parquet(*(f"{topic.path}/{part.run.path}" for part in parts))
    around = _around(parts)
    for condition in (around, where):
        if condition is not None:
            messages = messages.filter(condition)
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
    """What is meant of each file, None where the files cannot be read by themselves."""
    parts: list[_Part] = []
    for partition, held in by_partition(ranges).items():
        spans = [(each.first, each.last) for each in held]
        for run, stretches in ledgers.spans_of(topic.topic_id, partition, spans):
            if len(parts) == MOST_FILES or not is_as_published(topic.path, run):
                return None
            firsts, lasts = np.array([*stretches], np.int64).T - run.to_position
            parts.append(_Part(partition, run, firsts, lasts))
    are_plain = all(_is_plain(topic, part.run) for part in parts)
    is_one_run_each = len({(part.partition, part.name) for part in parts}) == len(parts)
    return parts if parts and are_plain and is_one_run_each else None


def _is_plain(topic: Topic, run: Run) -> bool:
    """Does Spark take the path of the file of *run* as it is, say its name in rows as it is, and find its partition in
    it? Those are not just below the table that were published by Spark into a store (see staged_files.StagedFolder)."""
    folders, _, name = run.path.rpartition("/")
    is_found = not topic.partitions or "/" not in folders
    return is_found and bool(_PLAIN_NAME.fullmatch(name)) and not _GLOB.search(str(topic.path))


def _is_whole_file(topic: Topic, ledgers: LedgerIndex, part: _Part) -> bool:
    """Is all that its file holds meant? A file with entries of unequal batch size holds several runs, which lie side by
    side."""
    run = part.run
    if not part.is_whole:
        return False
    end = ledgers.end(topic.topic_id, part.partition)
    around = max(run.first_position - 1, 0), min(run.last_position + 1, end - 1)
    return [each.path for each in ledgers.runs(topic.topic_id, part.partition, *around)].count(run.path) == 1


def _around(parts: Sequence[_Part]) -> Column | None:
    """Bounds for Parquet to pass over row groups by, where a good part of a file is not meant. They are numbers in the
    code, so they are few and round."""
    meant = _blocks((part.firsts[0], part.lasts[-1]) for part in parts)
    if meant == _blocks((part.run.first_entry_id, part.run.last_entry_id) for part in parts):
        return None
    if len(meant) > _MOST_BOUNDS:
        meant = [(meant[0][0], meant[-1][1])]
    bounds = ((first << _BLOCK_BITS, (last + 1 << _BLOCK_BITS) - 1) for first, last in meant)
    return F.expr(" or ".join(f"entry_id between {first} and {last}" for first, last in bounds))


def _blocks(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Blocks of entry ids with any of *spans*, first to last: in order, those that overlap or adjoin as one.

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
    """Where a row is on an axis on which all entries of the files between the first and the last that is meant lie side
    by side, and what follows from it."""

    def __init__(self, parts: Sequence[_Part]):
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
        if not all(part.is_one_stretch for part in parts):
            self.is_in &= self.stretches.holds(entry_id + self._of_file(to_place))
        self.ledger_id, self.position = self._of_file(ledger_ids), entry_id + self._of_file(to_position)

    def _number_of_file(self) -> Column:
        """Null or negative for a file that is none of them."""
        name = F.array_position(F.array(*map(F.lit, self._names)), F.col("_metadata.file_name")) - 1
        if len(self._partitions) == 1:
            return name
        partition = F.array_position(numbers(np.array(self._partitions)), F.col("partition").cast("bigint")) - 1
        return partition * len(self._names) + name

    def _of_file(self, values: np.ndarray) -> Column:
        return F.get(numbers(values), self._file.cast("int"))
