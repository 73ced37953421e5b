"""The ``ledgers`` table, and numbering a topic's new publish commits from its log.

A projection of ``messages``: any reader of the log comes to the same rows, so a crash between writing them and the
round that uses them is repaired by reading them back. Commits that remove, rewrite or overwrite number nothing (design
3.4, rule 6); a publish that was retried counts once. Rows that are no publish number nothing either: a topic is a Delta
table, so people may write to it, and what they write stops nobody.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import CorruptState, MessagesLost
from pulsar_spark.protocol.numbering import NotAPublish, PublishedFile, Run, number_files
from pulsar_spark.storage.actions import AddedFile, Commit
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.published import read_published
from pulsar_spark.storage.scan import dataset_of, open_table
from pulsar_spark.storage.tables import read_file
from pulsar_spark.storage.topic_files import GONE
from pulsar_spark.table_specs import LEDGERS, MESSAGES

_STATISTICS_UNIT = timedelta(milliseconds=1)
_LONG, _INT = 2**63 - 1, 2**31 - 1
NO_POSITION = -1
"""``first_position`` of rows of ``ledgers`` that are no run: see :func:`note_rows`."""


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
            raise CorruptState(
                f"ledger {run.ledger_id}: positions {self.end_position} to {run.first_position - 1} are missing: "
                "rebuild the ledgers table"
            )
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
        return (
            self._messages_before[index] + (min(position, run.last_position + 1) - run.first_position) * run.batch_size
        )


def number_commit(
    table: Path, commit: Commit, ends: dict[int, int], seen_publish_ids: set[str], partitions: int | None = None
) -> dict[int, list[Run]]:
    """Runs per partition of one commit; none for a commit that is no publish, or a retried one. Adds to
    *seen_publish_ids*.

    A publish only adds files, all of one publish id, and their entry ids are dense. Somebody else's rows are no publish
    (see :func:`foreign_files`): they number nothing, and what comes behind them is numbered as if they were not there.
    :class:`CorruptState` for what tells nonsense of a file.
    """
    files = published_files(table, commit, partitions)
    publish_ids = {file.publish_id for file in files}
    if not files or publish_ids <= seen_publish_ids:
        return {}
    try:
        batch_sizes = {
            file.path: _entry_batch_sizes(table, file, commit.version) for file in files if file.batch_size is None
        }
        numbered = number_files(files, ledger_id=commit.version, ends=ends, batch_sizes=batch_sizes)
    except NotAPublish:
        return {}
    seen_publish_ids |= publish_ids
    return numbered


def published_files(table: Path, commit: Commit, partitions: int | None = None) -> list[PublishedFile]:
    """The files of a commit that is a publish, as far as the log tells; none of any other."""
    if not commit.added or commit.removed or commit.is_overwrite:
        return []
    files = [
        _published_file(table, commit.version, file) for file in commit.added if file.rows or not file.has_statistics
    ]
    is_publish = (
        None not in files
        and len({file.publish_id for file in files}) == 1
        and all(
            file.batch_size is None or file.batch_size * (file.last_entry_id - file.first_entry_id + 1) == file.rows
            for file in files
        )
    )
    return files if is_publish and _are_partitions(files, partitions) else []


def foreign_files(table: Path, commit: Commit, is_publish: bool, partitions: int | None = None) -> list[AddedFile]:
    """The files of a commit that hold rows nobody is sent; *is_publish* says that the commit was numbered.

    They are no publish, or a publish again that counts once: then they say that they have no rows. Where a commit
    removes files, what it adds are mostly the rows that stay of them: then only files with rows that name no publish
    are foreign.
    """
    if is_publish:
        return []
    added = [file for file in commit.added if file.rows or not file.has_statistics]
    if commit.removed:
        return [file for file in added if not file.min_values.get("publish_id") or file.null_counts.get("publish_id")]
    return [replace(file, rows=0) for file in added] if published_files(table, commit, partitions) else added


def check_statistics(table: Path, commit: Commit) -> None:
    """:class:`CorruptState` for a commit that numbering would stop at, without reading any of its files."""
    for file in commit.added:
        _published_file(table, commit.version, file)


def _are_partitions(files: list[PublishedFile], partitions: int | None) -> bool:
    return partitions is None or all(
        0 <= file.partition < partitions if partitions else file.partition == -1 for file in files
    )


def _published_file(table: Path, version: int, file: AddedFile) -> PublishedFile | None:
    """What numbering needs of a file; None where it holds rows that are not of one publish, or that cannot be told."""
    low, high, nulls = file.min_values, file.max_values, file.null_counts
    try:
        partition = int(file.partition_values["partition"]) if "partition" in file.partition_values else -1
        if nulls.get("batch_size") == file.rows:
            low, high, nulls = (
                {**low, "batch_size": 1},
                {**high, "batch_size": 1},
                {**nulls, "batch_size": 0},
            )  # nobody says that it is a batch
        bounds = [
            _number(bound[name], name, most)
            for name, most in (("entry_id", _LONG), ("batch_size", _INT))
            for bound in (low, high)
            if name in bound
        ]
        ids = [bound["publish_id"] for bound in (low, high) if "publish_id" in bound]
        times = _time(low.get("publish_time")), _time(high.get("publish_time"))
        if not all(isinstance(each, str) for each in ids) or not all(
            isinstance(count, int) for count in nulls.values() if not isinstance(count, dict)
        ):
            raise TypeError("publish ids and counts of nulls are texts and numbers")
    except (TypeError, ValueError) as broken:
        raise CorruptState(
            f"{table}: commit {version}: the statistics of file {file.path!r} cannot be believed ({broken})"
        ) from broken
    if (
        len(bounds) < 4
        or len(ids) < 2
        or ids[0] != ids[1]
        or any(nulls.get(name) for name in ("publish_id", "entry_id", "batch_size"))
    ):
        return None
    first, last, smallest, largest = bounds

    def may_have(column: str, unless_known: bool) -> bool:
        return nulls[column] < file.rows if column in nulls else unless_known

    return PublishedFile(
        partition,
        ids[0],
        first,
        last,
        file.rows,
        smallest if smallest == largest else None,
        file.path,
        *times,
        file.size,
        may_have("deliver_at_time", False),
        may_have("uuid", False),
        may_have("partition_key", True) or may_have("ordering_key", True),
    )


def _number(value: object, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -most <= value <= most:
        raise TypeError(f"{name} is {value!r:.60}")
    return value


def _entry_batch_sizes(table: Path, file: PublishedFile, ledger_id: int) -> list[int]:
    """Messages of each entry, in order. Of entries that were deleted or lost before they were numbered, and whose file
    is gone, only the sum is known: the first of them stands for what is left over."""
    names = ["entry_id", "batch_size"]
    try:
        rows = read_file(table, file.path, MESSAGES.schema, names)
    except GONE:
        try:
            rows = read_published(
                table, file.path, file.publish_id, file.first_entry_id, file.last_entry_id, names, ledger_id
            )
        except MessagesLost:
            rows = MESSAGES.schema.empty_table()
    sizes = dict(zip(rows["entry_id"].to_pylist(), rows["batch_size"].to_pylist()))
    entries = file.last_entry_id - file.first_entry_id + 1
    if None in sizes or None in sizes.values() or entries > file.rows:
        raise NotAPublish(
            f"file {file.path!r}: {file.rows} rows do not make up entries {file.first_entry_id} to {file.last_entry_id}"
        )
    left_over = file.rows - sum(sizes.values()) - (entries - len(sizes))
    for entry_id in range(file.first_entry_id, file.last_entry_id + 1):
        if entry_id not in sizes:
            sizes[entry_id], left_over = 1 + left_over, 0
    return [sizes[entry_id] for entry_id in sorted(sizes)]


def _time(text: object) -> datetime | None:
    found = datetime.fromisoformat(text) if text else None
    return found.replace(tzinfo=timezone.utc) if found is not None and found.tzinfo is None else found


def ledger_rows(topic: str, topic_id: str, numbered: dict[int, list[Run]]) -> list[dict]:
    """Rows of the ``ledgers`` table for the runs of a topic."""
    return [
        dict(run._asdict(), topic=topic, topic_id=topic_id, partition=partition)
        for partition, runs in numbered.items()
        for run in runs
    ]


def note_rows(topic: str, topic_id: str, commit: Commit, foreign: list[AddedFile]) -> list[dict]:
    """Rows of ``ledgers`` for what a commit did to the topic that is no publish, so that every reader knows without
    looking at the log: one that names no file where rows were removed or rewritten, so that files named by earlier runs
    may no longer be the table's; and one for each file of foreign rows, whose number is in ``first_entry_id``. They
    have no position, and no entries."""
    common = dict(
        topic=topic, topic_id=topic_id, ledger_id=commit.version, first_position=NO_POSITION, entries=0, batch_size=0
    )
    rows = [dict(common, partition=-1, first_entry_id=0)] if commit.removed else []
    return rows + [
        dict(common, partition=_partition_of(file), first_entry_id=file.rows, path=file.path, bytes=file.size)
        for file in foreign
    ]


def _partition_of(file: AddedFile) -> int:
    value = file.partition_values.get("partition") or ""
    return int(value) if value.isdigit() and len(value) < 9 else -1


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
    """(topic id, partition, run) of every run, in order of position."""
    rows = rows.filter(pc.greater(rows["first_position"], NO_POSITION))
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
    """Was the entry at *position* published before *instant*? Its file is read only where that lies between the
    earliest and the latest time in it."""
    run = ledgers.runs[ledgers.index_of(position)]
    if run.max_publish_time is not None and run.max_publish_time + _STATISTICS_UNIT <= instant:
        return True
    return (
        run.min_publish_time is not None
        and run.min_publish_time < instant
        and any(at == position and published < instant for at, published in _publish_times(table, run))
    )


def _publish_times(table: Path, run: Run) -> Iterator[tuple[int, datetime]]:
    """(position, publish time) of the run's entries; those whose file is lost count as published when the last of them
    may have been."""
    try:
        rows = read_published(
            table,
            run.path,
            run.publish_id,
            run.first_entry_id,
            run.first_entry_id + run.entries - 1,
            ["entry_id", "publish_time"],
            run.ledger_id,
        )
    except MessagesLost:
        yield from ((position, run.max_publish_time) for position in (run.first_position, run.last_position))
        return
    for entry_id, published in zip(rows["entry_id"].to_pylist(), rows["publish_time"].to_pylist()):
        if published is not None:
            yield run.first_position + entry_id - run.first_entry_id, published
