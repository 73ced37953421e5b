"""Parse and check the actions of Delta commit files. Source: the Delta protocol, "Actions", "Per-file Statistics"."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.storage.delta.reader_rows import STATED, Columns, columns_of

ENGINE = "pulsar_spark"
HOUSEKEEPING = "housekeeping"
"""Transaction of a commit that removes unneeded rows of a broker's table. Such a commit fences nobody."""
TRIMMED = "trimmed/"
"""Prefix, followed by the partition, of a transaction that trims a topic; its version is the last trimmed ledger."""

READER_VERSION, WRITER_FEATURES_VERSION = 1, 7
KNOWN_FEATURES = frozenset(("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"))
"""Table features of writer version 4 that need nothing from a program that appends and reads whole files."""


@dataclass(frozen=True)
class AddedFile:
    """An ``add`` action. ``rows`` is 0 if the file has no statistics."""

    path: str
    size: int
    rows: int
    partition_values: dict[str, str | None]
    min_values: dict
    max_values: dict
    null_counts: dict
    has_statistics: bool = True
    stated: Columns | None = None
    """The rows in the commit, if it states them (see reader_rows)."""


@dataclass(frozen=True)
class Commit:
    """One version of a table's log; ``added`` and ``removed`` cover data-changing actions only.

    ``unknown_feature`` names a feature that this release does not know. ``concerns`` names the readers of the rows
    (None: not stated), ``reader_rows`` has them (None: see the files). ``updated_ms`` has the times of
    transactions. ``is_ours``: this package wrote it.
    """

    version: int
    added: tuple[AddedFile, ...]
    removed: int
    transactions: dict[str, int] = field(default_factory=dict)
    is_overwrite: bool = False
    operation: str = ""
    unknown_feature: str | None = None
    updated_ms: dict[str, int] = field(default_factory=dict)
    concerns: frozenset[str] | None = None
    is_ours: bool = False
    reader_rows: tuple[dict, ...] | None = None

    def may_concern(self, names: Iterable[str]) -> bool:
        """Whether a reader with one of these *names* must read the commit's rows."""
        return self.concerns is None or not self.concerns.isdisjoint(names)

    @property
    def is_fencing(self) -> bool:
        """Did the commit change data other than by housekeeping?"""
        return bool(self.added or self.removed) and HOUSEKEEPING not in self.transactions

    @property
    def trimmed(self) -> dict[int, int]:
        """The last trimmed ledger by partition."""
        found = {
            re.fullmatch(f"{TRIMMED}(-1|[0-9]{{1,5}})", app_id): ledger_id
            for app_id, ledger_id in self.transactions.items()
        }
        return {int(match[1]): ledger_id for match, ledger_id in found.items() if match}


def parse_commit(version: int, text: bytes, table: object) -> Commit:
    """The commit in a file's bytes; :class:`CorruptState`, naming *table*, if invalid."""
    try:
        return _commit(version, parse_actions(text))
    except (ValueError, KeyError, TypeError, RecursionError) as broken:
        raise CorruptState(
            f"{str(table)!r}: commit {version} is not a Delta commit ({type(broken).__name__}: {broken}); {DOCTOR}"
        ) from broken


def parse_actions(text: bytes) -> list[dict]:
    """The actions of a commit file; ValueError or TypeError if it is empty, cut off or no commit."""
    actions = [_object(json.loads(line), "a line") for line in text.decode().split("\n") if line.strip("\0 \t\r")]
    if not actions:
        raise ValueError(f"its {len(text)} bytes are empty, as after a power loss")
    _check_whole(actions)
    return actions


def _check_whole(actions: list[dict]) -> None:
    """Detect a cut-off file: our own commits state their number of files."""
    info = actions[0].get("commitInfo")
    if not isinstance(info, dict) or info.get("engineInfo") != ENGINE:
        return
    metrics = info.get("operationMetrics")
    stated = metrics.get("numFiles") if isinstance(metrics, dict) else None
    found = sum("add" in action or "remove" in action for action in actions)
    if stated is not None and stated != str(found):
        raise ValueError(f"it announces {stated} files and lists {found}: it was cut off")


def _commit(version: int, actions: list[dict]) -> Commit:
    added, removed, transactions, updated_ms = [], 0, {}, {}
    stated: dict[str, Any] = {}
    rows = _stated_rows(actions)
    for action in actions:
        if "add" in action:
            add = _object(action["add"], "add")
            if add.get("deletionVector") is not None:
                stated["unknown_feature"] = "deletion vectors"
            if add.get("dataChange", True):
                added.append(added_file(add, next(rows, None)))
        elif "remove" in action:
            remove = _object(action["remove"], "remove")
            _text(remove["path"], "path")
            removed += bool(remove.get("dataChange", True))
        elif "txn" in action:
            transaction = _object(action["txn"], "txn")
            app_id = _text(transaction["appId"], "appId")
            transactions[app_id] = _number(transaction["version"], "version", least=-MAX_LONG)
            if transaction.get("lastUpdated") is not None:
                updated_ms[app_id] = _number(transaction["lastUpdated"], "lastUpdated", least=-MAX_LONG)
        elif "commitInfo" in action:
            info = _object(action["commitInfo"], "commitInfo")
            parameters = _object(info.get("operationParameters") or {}, "operationParameters")
            stated["operation"] = str(info.get("operation") or "")[:100]
            stated["is_ours"] = info.get("engineInfo") == ENGINE
            stated["is_overwrite"] = parameters.get("mode") == "Overwrite"
            if isinstance(info.get("concerns"), list):
                stated["concerns"] = frozenset(_text(name, "a name of concerns") for name in info["concerns"])
            if stated["is_ours"] and isinstance(info.get("readerRows"), list):
                stated["reader_rows"] = tuple(_object(row, "a row") for row in info["readerRows"])
        elif "protocol" in action:
            unknown_feature = _unknown_feature(_object(action["protocol"], "protocol"))
            stated["unknown_feature"] = stated.get("unknown_feature") or unknown_feature
        elif "metaData" in action:
            _text(_object(action["metaData"], "metaData")["schemaString"], "schemaString")
    return Commit(version, tuple(added), removed, transactions, updated_ms=updated_ms, **stated)


def _unknown_feature(protocol: dict) -> str | None:
    reader = _number(protocol["minReaderVersion"], "minReaderVersion")
    writer = _number(protocol["minWriterVersion"], "minWriterVersion")
    features = {
        _text(name, "a feature") for key in ("readerFeatures", "writerFeatures") for name in protocol.get(key) or ()
    }
    if reader == 3 or writer == WRITER_FEATURES_VERSION:
        unknown = sorted(features - KNOWN_FEATURES)
        return f"table feature {unknown[0]}" if unknown else None
    if reader > READER_VERSION:
        return f"reader version {reader}"
    return f"writer version {writer}" if writer > WRITER_FEATURES_VERSION else None


def _stated_rows(actions: list[dict]) -> Iterator[object]:
    """The rows that our commit states of each file that it adds."""
    info = actions[0].get("commitInfo")
    found = info.get(STATED) if isinstance(info, dict) and info.get("engineInfo") == ENGINE else None
    if not isinstance(found, list) or len(found) != sum("add" in action for action in actions):
        return iter(())
    return iter(found)


def added_file(add: dict, stated: object = None) -> AddedFile:
    """The file of an ``add`` action; ValueError, KeyError or TypeError if it is invalid."""
    stats = _object(json.loads(_text(add["stats"], "stats")), "stats") if add.get("stats") else {}
    least, greatest, nulls = (_object_or_none(stats, name) for name in ("minValues", "maxValues", "nullCount"))
    values = _object_or_none(add, "partitionValues")
    for value in values.values():
        if value is not None:
            _text(value, "a partition value")
    has_statistics = stats.get("numRecords") is not None
    rows = _number(stats["numRecords"], "numRecords") if has_statistics else 0
    path, size = unquote(_text(add["path"], "path")), _number(add["size"], "size")
    return AddedFile(path, size, rows, values, least, greatest, nulls, has_statistics, columns_of(stated, rows))


def _object_or_none(found: dict, name: str) -> dict:
    return _object({} if found.get(name) is None else found[name], name)


def _object(value: object, what: str) -> dict:
    if not isinstance(value, dict):
        raise TypeError(f"{what} is {value!r:.60}, not an object")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r:.60}, not a text")
    return value


def _number(value: object, what: str, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_LONG:
        raise TypeError(f"{what} is {value!r:.60}, not a whole number of {least} or more")
    return value
