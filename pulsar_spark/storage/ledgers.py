"""The ``ledgers`` table, and numbering a topic's new publish commits from its log.

A projection of ``messages``: any reader of the log comes to the same rows, so a crash between writing them and the round that uses them is repaired by reading
them back. Commits that remove, rewrite or overwrite number nothing (design 3.4, rule 6); a publish that was retried counts once.
"""
from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.numbering import PublishedFile, Run, number_files
from pulsar_spark.schemas import LEDGERS
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import AddedFile, Commit
from pulsar_spark.storage.published import read_published
from pulsar_spark.storage.scan import dataset_of, open_table

_STATISTICS_UNIT = timedelta(milliseconds=1)


class PartitionLedgers:
    """The runs of one topic partition in order of position, with the sums that turn positions into messages."""

    def __init__(self):
        self.runs: list[Run] = []
        self._firsts: list[int] = []
        self._messages_before: list[int] = []

    @property
    def end_position(self) -> int:
        """Position the next entry gets."""
        return self.runs[-1].last_position + 1 if self.runs else 0

    def add(self, run: Run) -> None:
        """Append the next run; one already known is passed over."""
        if run.first_position < self.end_position:
            return
        if run.first_position > self.end_position:
            raise CorruptState(f"ledger {run.ledger_id}: positions {self.end_position} to {run.first_position - 1} are missing: rebuild the ledgers table")
        self._messages_before.append(self.messages_before(run.first_position))
        self.runs.append(run)
        self._firsts.append(run.first_position)

    def index_of(self, position: int) -> int:
        """Index of the run that holds *position*, or of the last run before it; -1 before the first."""
        return bisect_right(self._firsts, position) - 1

    def first_behind(self, ledger_id: int) -> int:
        """Position of the first entry of a later ledger; the end position when there is none."""
        index = bisect_right(self.runs, ledger_id, key=lambda run: run.ledger_id)
        return self.runs[index].first_position if index < len(self.runs) else self.end_position

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs that hold positions *first*..*last*."""
        for index in range(max(self.index_of(first), 0), len(self.runs)):
            if self.runs[index].first_position > last:
                return
            yield self.runs[index]

    def messages_before(self, position: int) -> int:
        """Messages of all entries below *position*."""
        index = self.index_of(position - 1)
        if index < 0:
            return 0
        run = self.runs[index]
        return self._messages_before[index] + (min(position, run.last_position + 1) - run.first_position) * run.batch_size

    def messages_in(self, first: int, last: int) -> int:
        """Messages of the entries at *first*..*last*."""
        return self.messages_before(last + 1) - self.messages_before(first) if last >= first else 0


def number_commit(table: Path, commit: Commit, ends: dict[int, int], seen_publish_ids: set[str]) -> dict[int, list[Run]]:
    """Runs per partition of one commit; none for a commit that is no publish, or a retried one. Adds to *seen_publish_ids*."""
    if not commit.added or commit.removed or commit.is_overwrite:
        return {}
    files = [_published_file(table, file) for file in commit.added if file.rows]
    publish_ids = {file.publish_id for file in files}
    if len(publish_ids) > 1:
        raise CorruptState(f"{str(table)!r}: commit {commit.version} has {len(publish_ids)} publish ids, a publish has one")
    if publish_ids <= seen_publish_ids:
        return {}
    seen_publish_ids |= publish_ids
    batch_sizes = {file.path: _entry_batch_sizes(table, file) for file in files if file.batch_size is None}
    return number_files(files, ledger_id=commit.version, ends=ends, batch_sizes=batch_sizes)


def _published_file(table: Path, file: AddedFile) -> PublishedFile:
    low, high, nulls = file.min_values, file.max_values, file.null_counts
    try:
        first, last = low["entry_id"], high["entry_id"]
        publish_id = low["publish_id"]
        if publish_id != high["publish_id"]:
            raise CorruptState(f"{str(table)!r}: file {file.path!r} mixes publish ids")
        smallest, largest = low["batch_size"], high["batch_size"]
        partition = int(file.partition_values["partition"]) if "partition" in file.partition_values else -1
    except KeyError as missing:
        raise CorruptState(f"{str(table)!r}: file {file.path!r} has no statistics of {missing}: write topics only through this package") from missing

    def may_have(column: str, unless_known: bool) -> bool:
        return nulls[column] < file.rows if column in nulls else unless_known

    return PublishedFile(partition, publish_id, first, last, file.rows, smallest if smallest == largest else None, file.path, _time(low.get("publish_time")),
                         _time(high.get("publish_time")), file.size, may_have("deliver_at_time", False), may_have("uuid", False),
                         may_have("partition_key", True) or may_have("ordering_key", True))


def _entry_batch_sizes(table: Path, file: PublishedFile) -> list[int]:
    rows = read_published(table, file.path, file.publish_id, file.first_entry_id, file.last_entry_id, ["entry_id", "batch_size"])
    sizes = dict(zip(rows["entry_id"].to_pylist(), rows["batch_size"].to_pylist()))
    return [sizes[entry_id] for entry_id in sorted(sizes)]


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def ledger_rows(topic: str, topic_id: str, numbered: dict[int, list[Run]]) -> list[dict]:
    """Rows of the ``ledgers`` table for the runs of a topic."""
    return [dict(run._asdict(), topic=topic, topic_id=topic_id, partition=partition) for partition, runs in numbered.items() for run in runs]


def read_ledgers(path: Path, *, topic_id: str | None = None) -> tuple[pa.Table, int]:
    """All rows of the table (of one topic), and the version they were read at."""
    table = open_table(path)
    wanted = pc.field("topic_id") == topic_id if topic_id else None
    return dataset_of(table).to_table(columns=LEDGERS.schema.names, filter=wanted).cast(LEDGERS.schema), table.version()


def ledgers_of_topic(layout: Layout, topic_id: str) -> dict[int, PartitionLedgers]:
    """The runs of each partition of a topic, as numbered so far."""
    found: dict[int, PartitionLedgers] = {}
    rows, _ = read_ledgers(layout.broker_table(LEDGERS.name), topic_id=topic_id)
    for _, partition, run in runs_of(rows):
        found.setdefault(partition, PartitionLedgers()).add(run)
    return found


def runs_of(rows: pa.Table) -> Iterator[tuple[str, int, Run]]:
    """(topic id, partition, run) of every row, in order of position."""
    columns = [rows.column(name).to_pylist() for name in ("topic_id", "partition", *Run._fields)]
    for topic_id, partition, *fields in sorted(zip(*columns), key=lambda row: (row[0], row[1], row[2])):
        yield topic_id, partition, Run(*fields)


def first_published_at(table: Path, ledgers: PartitionLedgers, instant: datetime) -> int:
    """Position of the first entry published at or after *instant*; the end position when there is none.

    Statistics keep milliseconds, so a run whose latest time is less than one before *instant* is looked into as well.
    """
    for run in ledgers.runs:
        if run.max_publish_time is not None and run.max_publish_time + _STATISTICS_UNIT >= instant:
            late = [position for position, published in _publish_times(table, run) if published >= instant]
            if late:
                return min(late)
    return ledgers.end_position


def last_published_before(table: Path, ledgers: PartitionLedgers, instant: datetime) -> int:
    """Position of the last entry published before *instant*; -1 when there is none."""
    for run in reversed(ledgers.runs):
        if run.max_publish_time is not None and run.max_publish_time + _STATISTICS_UNIT <= instant:
            return run.last_position
        if run.min_publish_time is not None and run.min_publish_time < instant:
            early = [position for position, published in _publish_times(table, run) if published < instant]
            if early:
                return max(early)
    return -1


def is_published_before(table: Path, ledgers: PartitionLedgers, position: int, instant: datetime) -> bool:
    """Was the entry at *position* published before *instant*? Its file is read only where that lies between the earliest and the latest time in it."""
    run = ledgers.runs[ledgers.index_of(position)]
    if run.max_publish_time is not None and run.max_publish_time + _STATISTICS_UNIT <= instant:
        return True
    return run.min_publish_time is not None and run.min_publish_time < instant and any(
        at == position and published < instant for at, published in _publish_times(table, run))


def _publish_times(table: Path, run: Run) -> Iterator[tuple[int, datetime]]:
    rows = read_published(table, run.path, run.publish_id, run.first_entry_id, run.first_entry_id + run.entries - 1, ["entry_id", "publish_time"])
    for entry_id, published in zip(rows["entry_id"].to_pylist(), rows["publish_time"].to_pylist()):
        yield run.first_position + entry_id - run.first_entry_id, published
