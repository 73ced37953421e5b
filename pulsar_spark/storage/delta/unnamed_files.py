"""Data files that no commit names, by publish or round: remains of a lost commit or a crashed writer."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.repair.examination import named_files
from pulsar_spark.storage.store.store import AnyPath, store_of


class Group(NamedTuple):
    """Unnamed files of one publish or round; ``written`` is their latest time."""

    identity: object
    files: tuple[str, ...]
    written: float


def unnamed_files(path: AnyPath, column: str | None, broken: set[int]) -> list[Group]:
    """Files that no commit but *broken* ones names, oldest first.

    *column* has one value per commit and groups the files; None makes each file a group.
    """
    log = TableLog(path)
    readable = (version for version in sorted(log.versions()) if version not in broken) if log.exists() else ()
    added = [file for version in readable for file in log.commit(version).added]
    named = {*named_files(path, broken), *(file.path for file in added)}
    known = {file.min_values.get(column) for file in added}
    found: dict[object, list[str]] = {}
    there = store_of(path).below(path, without="_delta_log")
    for name in sorted(there):
        if not name.endswith(".parquet") or name.startswith(("_", ".")) or name in named:
            continue
        try:
            found.setdefault(_identity_of(path / name, name, column), []).append(name)
        except (pa.ArrowInvalid, FileNotFoundError, KeyError):
            continue
        except OSError:
            if not store_of(path).is_local:  # the store does not answer, so the file may be sound
                raise
    groups = [
        Group(identity, tuple(names), max(there[name].st_mtime for name in names))
        for identity, names in found.items()
        if column is None or identity not in known
    ]
    begins = log.file(log.earliest()).stat().st_mtime if log.earliest() > 0 else float("-inf")
    return sorted((group for group in groups if group.written >= begins), key=lambda group: group.written)


def _identity_of(file: AnyPath, name: str, column: str | None) -> object:
    """The column's only value, else the name; ArrowInvalid if incomplete, KeyError without the column."""
    if column is None:
        store_of(file).footer(file)
        return name
    values = pq.ParquetFile(store_of(file).parquet(file)).read(columns=[column])[column].unique().to_pylist()
    return values[0] if len(values) == 1 else name
