"""The ``ledgers`` table, and numbering a topic's new publish commits from its log.

A projection of ``messages``: any reader of the log comes to the same rows, so a crash between writing them and the
round that uses them is repaired by reading them back. Commits that remove, rewrite or overwrite number nothing (design
3.4, rule 6); a publish that was retried counts once. Rows that are no publish number nothing either: a topic is a Delta
table, so people may write to it, and what they write stops nobody.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.numbering import NO_POSITION, NotAPublish, PublishedFile, Run, number_files
from pulsar_spark.storage.actions import AddedFile, Commit
from pulsar_spark.storage.entries import EntryReader
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.missing import Missing
from pulsar_spark.storage.scan import dataset_of, open_table
from pulsar_spark.storage.tables import read_file
from pulsar_spark.storage.topic_files import READ_ERRORS, raise_unless_damage
from pulsar_spark.storage.topics import Topic
from pulsar_spark.table_specs import LEDGERS, MESSAGES

_STATISTICS_UNIT = timedelta(milliseconds=1)
_LONG, _INT = 2**63 - 1, 2**31 - 1


class PartitionLedgers:
    """The runs of one topic partition in order of position, with the sums that turn positions into messages: the one
    index of where entries lie. In columns, because there are many: a run costs some 300 bytes.

    Order of positions is that of (ledger id, entry id) too, so whatever is looked up costs a binary search.
    """

    def __init__(self):
        self._numbers = {name: array("q") for name in ("first_position", "entries", "batch_size", "ledger_id")}
        self._numbers |= {name: array("q") for name in ("first_entry_id", "bytes", "messages_before")}
        self._others: dict[str, list] = {name: [] for name in Run._fields if name not in self._numbers}
        self._firsts, self._ledger_ids = self._numbers["first_position"], self._numbers["ledger_id"]
        self._columns = [self._numbers.get(name, self._others.get(name)) for name in Run._fields]

    def __len__(self) -> int:
        return len(self._firsts)

    def __getitem__(self, index: int) -> Run:
        return Run(*(column[index] for column in self._columns))

    @property
    def runs(self) -> Sequence[Run]:
        """All of them, in order."""
        return _Runs(self)

    @property
    def end_position(self) -> int:
        """Position the next entry gets."""
        return self._firsts[-1] + self._numbers["entries"][-1] if self._firsts else 0

    @property
    def last_ledger_id(self) -> int:
        """The last publish commit with entries here, -1 for none."""
        return self._ledger_ids[-1] if self._firsts else -1

    def add(self, run: Run) -> None:
        """Append the next run; one already known is passed over."""
        if run.first_position < self.end_position:
            return
        if run.first_position > self.end_position:
            raise CorruptState(
                f"ledger {run.ledger_id}: positions {self.end_position} to {run.first_position - 1} are missing: "
                "rebuild the ledgers table"
            )
        self._numbers["messages_before"].append(self.messages_before(run.first_position))
        if len(self) and self._others["publish_id"][-1] == run.publish_id:
            run = run._replace(publish_id=self._others["publish_id"][-1])
        for column, value in zip(self._columns, run):
            column.append(value if type(column) is list else value or 0)

    def index_of(self, position: int) -> int:
        """Index of the run that holds *position*, or of the last run before it; -1 before the first."""
        return bisect_right(self._firsts, position) - 1

    def index_of_entry(self, ledger_id: int, entry_id: int) -> int:
        """The same for the entry, or the last before it."""
        first, last = bisect_left(self._ledger_ids, ledger_id), bisect_right(self._ledger_ids, ledger_id)
        return bisect_right(self._numbers["first_entry_id"], entry_id, first, last) - 1

    def first_behind(self, ledger_id: int) -> int:
        """Position of the first entry of a later ledger; the end position when there is none."""
        index = bisect_right(self._ledger_ids, ledger_id)
        return self._firsts[index] if index < len(self) else self.end_position

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs that hold positions *first*..*last*."""
        for index in range(max(self.index_of(first), 0), len(self)):
            if self._firsts[index] > last:
                return
            yield self[index]

    def parts(self, first: int, last: int) -> Iterator[Run]:
        """The same, cut to those positions; :class:`CorruptState` for one that is not numbered."""
        if first < 0 or last >= self.end_position:
            missing = first if first < 0 or first >= self.end_position else self.end_position
            raise CorruptState(f"position {missing} is in no ledger: {DOCTOR}")
        return (run.part(first, last) for run in self.overlapping(first, last))

    def spans_of(self, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
        """The runs that hold positions of *spans* (first, last), in order and none overlapping the next, each with its
        parts of them."""
        run, parts = None, []
        for first, last in spans:
            last = min(last, self.end_position - 1)
            while first <= last:
                if run is None or first > run.last_position:
                    if parts:
                        yield run, parts
                    run, parts = next(self.overlapping(first, first)), []
                parts.append((first, min(last, run.last_position)))
                first = run.last_position + 1
        if parts:
            yield run, parts

    def messages_before(self, position: int) -> int:
        """Messages of all entries below *position*."""
        index = self.index_of(position - 1)
        if index < 0:
            return 0
        entries = min(position - self._firsts[index], self._numbers["entries"][index])
        return self._numbers["messages_before"][index] + entries * self._numbers["batch_size"][index]


class _Runs(Sequence):
    """The runs of a partition, each made when it is asked for."""

    def __init__(self, ledgers: PartitionLedgers):
        self._ledgers = ledgers

    def __len__(self) -> int:
        return len(self._ledgers)

    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        if isinstance(index, slice):
            return [self._ledgers[at] for at in range(*index.indices(len(self)))]
        return self._ledgers[index]


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
    """:class:`CorruptState` for a commit that numbering would stop at, without reading any of its files. What a commit
    says of rows that it rewrote is never asked: whatever values they were given, they are no publish."""
    if not commit.removed and not commit.is_overwrite:
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
    names, entries = ["entry_id", "batch_size"], file.last_entry_id - file.first_entry_id + 1
    try:
        sizes = _sizes(read_file(table, file.path, MESSAGES.schema, names))
    except READ_ERRORS as error:
        raise_unless_damage(error)
        sizes = {}
        for rows in EntryReader().read(table, file.as_run(ledger_id), columns=names):
            if not isinstance(rows, Missing):
                sizes |= {entry_id: size for entry_id, size in _sizes(rows).items() if size is not None and size > 0}
        unknown = entries - len(sizes)
        if sum(sizes.values()) + unknown > file.rows or (not unknown and sum(sizes.values()) < file.rows):
            sizes = {}  # whoever rewrote the rows has changed what they say
    if None in sizes or None in sizes.values() or entries > file.rows:
        raise NotAPublish(
            f"file {file.path!r}: {file.rows} rows do not make up entries {file.first_entry_id} to {file.last_entry_id}"
        )
    left_over = file.rows - sum(sizes.values()) - (entries - len(sizes))
    for entry_id in range(file.first_entry_id, file.last_entry_id + 1):
        if entry_id not in sizes:
            sizes[entry_id], left_over = 1 + left_over, 0
    return [sizes[entry_id] for entry_id in sorted(sizes)]


def _sizes(rows: pa.Table) -> dict[int, int | None]:
    return dict(zip(rows["entry_id"].to_pylist(), rows["batch_size"].to_pylist()))


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


def ledgers_until(layout: Layout, topic: Topic, until: int) -> dict[int, PartitionLedgers]:
    """The runs of each partition that were published up to version *until*, whether or not a broker has numbered them
    yet: what it will write later is the same. :class:`CorruptState` when log and ``ledgers`` both lack some."""
    rows, _ = read_ledgers(layout.broker_table(LEDGERS.name), topic_id=topic.topic_id)
    partitions: dict[int, PartitionLedgers] = {}
    numbered, publish_ids = 0, set()
    for _, partition, run in runs_of(rows):
        if run.ledger_id <= until:
            partitions.setdefault(partition, PartitionLedgers()).add(run)
        publish_ids.add(run.publish_id)
        numbered = max(numbered, run.ledger_id)
    log = TableLog(topic.path)
    if numbered < until and not log.has(numbered + 1):
        raise CorruptState(
            f"topic {str(topic.name)!r}: commit {numbered + 1} is neither in the log nor numbered: {DOCTOR}"
        )
    for commit in log.commits(numbered, until):
        ends = {partition: ledgers.end_position for partition, ledgers in partitions.items()}
        for partition, runs in number_commit(topic.path, commit, ends, publish_ids, topic.partitions).items():
            for run in runs:
                partitions.setdefault(partition, PartitionLedgers()).add(run)
    return partitions


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
        and any(published < instant for _, published in _publish_times(table, run.part(position, position)))
    )


def _publish_times(table: Path, run: Run) -> Iterator[tuple[int, datetime]]:
    """(position, publish time) of the run's entries; those that are lost count as published when the last of them may
    have been."""
    for rows in EntryReader().read(table, run, columns=["publish_time"]):
        if isinstance(rows, Missing):
            to_position = run.first_position - run.first_entry_id
            for entry_id in (entry_id for stretch in rows.whole for entry_id in stretch) if rows.is_lost else ():
                yield entry_id + to_position, run.max_publish_time
            continue
        for position, published in zip(rows["position"].to_pylist(), rows["publish_time"].to_pylist()):
            if published is not None:
                yield position, published
