"""Which commits of a topic's log are publishes, and the runs of their files.

Commits that remove, rewrite or overwrite number nothing (design 3.4, rule 6). A retried publish counts once.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.policies.policies import MOST_INT32
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.protocol.topics.numbering import NotAPublish, PublishedFile, Run, number_files
from pulsar_spark.storage.delta.actions import AddedFile, Commit
from pulsar_spark.storage.delta.data_files import read_file
from pulsar_spark.storage.delta.file_statistics import instant_of
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.missing import Missing
from pulsar_spark.storage.entries.topic_files import READ_ERRORS, raise_unless_damage
from pulsar_spark.storage.ledgers.publish_ids import PublishIds
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.partitions import partitions_now
from pulsar_spark.table_specs import MESSAGES


def number_commit(
    table: AnyPath,
    commit: Commit,
    ends: dict[int, int],
    seen_publish_ids: set[str] | PublishIds,
    partitions: int | None = None,
    *,
    delayed_after: Callable[[int], int] | None = None,
) -> dict[int, list[Run]]:
    """Runs per partition of one commit; none if it is no publish or a retried one. Adds to *seen_publish_ids*.

    A publish only adds files, with one publish id and dense entry ids. *delayed_after* gives, by partition, from when
    on delayed entries wait (see :class:`Run`). :class:`CorruptState` for impossible statistics.
    """
    files = published_files(table, commit, partitions)
    publish_ids = {file.publish_id for file in files}
    if all(each in seen_publish_ids for each in publish_ids):
        return {}
    try:
        batch_sizes = {
            file.path: _entry_batch_sizes(table, file, commit.version) for file in files if file.batch_size is None
        }
        numbered = number_files(files, ledger_id=commit.version, ends=ends, batch_sizes=batch_sizes)
    except NotAPublish:
        return {}
    seen_publish_ids.update(publish_ids)
    if delayed_after is None:
        return numbered
    return {
        partition: [run._replace(delayed_after=delayed_after(partition)) if run.has_delayed else run for run in runs]
        for partition, runs in numbered.items()
    }


def published_files(table: AnyPath, commit: Commit, partitions: int | None = None) -> list[PublishedFile]:
    """The files of a publish commit, as far as the log shows; else none."""
    if not commit.added or commit.removed or commit.is_overwrite:
        return []
    described = [
        _published_file(table, commit.version, file) for file in commit.added if file.rows or not file.has_statistics
    ]
    files = [file for file in described if file is not None]
    is_publish = (
        len(files) == len(described)
        and len({file.publish_id for file in files}) == 1
        and all(file.batch_size is None or file.batch_size * file.entries == file.rows for file in files)
    )
    return files if is_publish and _are_partitions(table, files, partitions) else []


def foreign_files(table: AnyPath, commit: Commit, is_publish: bool, partitions: int | None = None) -> list[AddedFile]:
    """The files of a commit with rows that nobody receives; *is_publish* says that it was numbered.

    A repeated publish's files are given with no rows. Of a commit that removes files, only files with rows without
    publish id are foreign.
    """
    if is_publish:
        return []
    added = [file for file in commit.added if file.rows or not file.has_statistics]
    if commit.removed:
        return [file for file in added if not file.min_values.get("publish_id") or file.null_counts.get("publish_id")]
    return [replace(file, rows=0) for file in added] if published_files(table, commit, partitions) else added


def check_statistics(table: AnyPath, commit: Commit) -> None:
    """:class:`CorruptState` for a commit at which numbering would stop; rewritten rows are ignored."""
    if not commit.removed and not commit.is_overwrite:
        for file in commit.added:
            _published_file(table, commit.version, file)


def _are_partitions(table: AnyPath, files: list[PublishedFile], partitions: int | None) -> bool:
    """Does the topic, which may have grown beyond *partitions*, have the files' partitions?"""
    if not partitions or not files:
        return partitions is None or all(file.partition == -1 for file in files)
    highest = max(file.partition for file in files)
    return min(file.partition for file in files) >= 0 and (highest < partitions or highest < partitions_now(table))


def _published_file(table: AnyPath, version: int, file: AddedFile) -> PublishedFile | None:
    """A file's facts for numbering; None if it is not surely one publish's."""
    try:
        partition, bounds, publish_ids, times, nulls = _statistics_of(file)
    except (TypeError, ValueError) as broken:
        raise CorruptState(
            f"{table}: commit {version}: the statistics of file {file.path!r} are not plausible ({broken})"
        ) from broken
    has_nulls = any(nulls.get(name) for name in ("publish_id", "entry_id", "batch_size"))
    if len(bounds) < 4 or len(publish_ids) < 2 or publish_ids[0] != publish_ids[1] or has_nulls:
        return None
    first, last, smallest, largest = bounds

    def may_have(column: str, unless_known: bool) -> bool:
        return nulls[column] < file.rows if column in nulls else unless_known

    return PublishedFile(
        partition,
        publish_ids[0],
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
        may_have("compression", False) or may_have("encryption_param", False),
    )


def _statistics_of(file: AddedFile) -> tuple[int, list[int], list[str], tuple[datetime | None, datetime | None], dict]:
    """Partition, known bounds of entry id, batch size, publish id and time, and null counts.

    TypeError or ValueError if impossible.
    """
    low, high, nulls = file.min_values, file.max_values, file.null_counts
    partition = int(file.partition_values.get("partition") or -1)
    if nulls.get("batch_size") == file.rows:
        low, high, nulls = low | {"batch_size": 1}, high | {"batch_size": 1}, nulls | {"batch_size": 0}  # no batches
    bounds = [
        _number(bound[name], name, most)
        for name, most in (("entry_id", MAX_LONG), ("batch_size", MOST_INT32))
        for bound in (low, high)
        if name in bound
    ]
    ids = [bound["publish_id"] for bound in (low, high) if "publish_id" in bound]
    times = instant_of(low.get("publish_time")), instant_of(high.get("publish_time"))
    if not all(isinstance(each, str) for each in ids) or not all(
        isinstance(count, int) for count in nulls.values() if not isinstance(count, dict)
    ):
        raise TypeError("publish ids and counts of nulls are texts and numbers")
    return partition, bounds, ids, times, nulls


def _number(value: object, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -most <= value <= most:
        raise TypeError(f"{name} is {value!r:.60}")
    return value


def _entry_batch_sizes(table: AnyPath, file: PublishedFile, ledger_id: int) -> list[int]:
    """Messages of each entry, in order. Of entries lost before only the sum is known: the first gets the excess."""
    names, entries = ["entry_id", "batch_size"], file.entries
    try:
        stored = _sizes(read_file(table, file.path, MESSAGES.schema, names))
    except READ_ERRORS as error:
        raise_unless_damage(error)
        stored = {}
        for rows in EntryReader().read(table, file.as_run(ledger_id), columns=names):
            if not isinstance(rows, Missing):
                stored |= {entry_id: size for entry_id, size in _sizes(rows).items() if size is not None and size > 0}
        unknown, messages = entries - len(stored), sum(size or 0 for size in stored.values())
        if messages + unknown > file.rows or (not unknown and messages < file.rows):
            stored = {}  # the rows were changed when they were rewritten
    sizes = {entry_id: size for entry_id, size in stored.items() if entry_id is not None and size is not None}
    if len(sizes) < len(stored) or entries > file.rows:
        raise NotAPublish(
            f"file {file.path!r}: {file.rows} rows do not make up entries {file.first_entry_id} to {file.last_entry_id}"
        )
    left_over = file.rows - sum(sizes.values()) - (entries - len(sizes))
    for entry_id in range(file.first_entry_id, file.last_entry_id + 1):
        if entry_id not in sizes:
            sizes[entry_id], left_over = 1 + left_over, 0
    return [sizes[entry_id] for entry_id in sorted(sizes)]


def _sizes(rows: pa.Table) -> dict[int | None, int | None]:
    return dict(zip(rows["entry_id"].to_pylist(), rows["batch_size"].to_pylist()))
