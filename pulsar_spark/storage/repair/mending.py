"""Repair commits that stop a topic, and remove added rows that are no publish. No position changes.

An unreadable commit is rewritten from its data files (see repair), or else from its readable lines.
"""

import itertools
import json
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta.actions import ENGINE, parse_actions, parse_commit
from pulsar_spark.storage.delta.commits import commit, replace_commit
from pulsar_spark.storage.delta.data_files import file_add
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_as_far_as_it_goes
from pulsar_spark.storage.delta.table_lock import lock_where_there_is_one
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.publishes import check_statistics
from pulsar_spark.storage.repair.condition import ForeignFile, read_condition
from pulsar_spark.storage.repair.repair import TableRepair
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic

_WRONG = (CorruptState, ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError, pa.ArrowException)


class Mended(NamedTuple):
    """A repaired commit, or removed files of foreign rows."""

    version: int
    what: str
    rows: int
    text: str


def mend_topic(layout: Layout, topic: Topic, *, dry_run: bool = False) -> list[Mended]:
    """Repair *topic* and remove foreign rows; returns what was, or with *dry_run* would be, done."""
    layout = layout_of(layout, topic.name)
    numbered = read_latest(layout, "topic").numbered_until(topic.topic_id)
    with lock_where_there_is_one(topic.path):
        mended = _mend_commits(topic, numbered, dry_run)
        if dry_run and mended:
            return mended
        foreign = read_condition(layout, topic, numbered).foreign
        return mended + _remove_foreign(topic, foreign, dry_run)


def _mend_commits(topic: Topic, numbered: int, dry_run: bool) -> list[Mended]:
    log, mended, repair = TableLog(topic.path), [], TableRepair(str(topic.name), topic.path, topic.name)
    for version in range(numbered + 1, log.latest() + 1):
        try:
            if log.has(version):
                check_statistics(topic.path, log.commit(version))
        except CorruptState as broken:
            text = log.file(version).read_bytes()
            kept, dropped = _readable(topic, version, text)
            restored = repair.restore(version, dry_run) if _may_be_publish(kept, text) else None
            if restored is not None:
                mended.append(Mended(version, "commit", 0, f"{restored.text}: {broken}"))
                continue
            if not dry_run:
                replace_commit(topic.path, version, _text_of(kept))
            mended.append(Mended(version, "commit", 0, f"{dropped} of {dropped + len(kept)} lines dropped: {broken}"))
    return mended


def _may_be_publish(kept: list[dict], text: bytes) -> bool:
    return b'"remove"' not in text and all(
        action.keys() <= {"txn", "add"} or action.get("commitInfo", {}).get("engineInfo") == ENGINE for action in kept
    )


def _readable(topic: Topic, version: int, text: bytes) -> tuple[list[dict], int]:
    actions = [_believable(topic, version, line) for line in text.split(b"\n") if line.strip()]
    kept = [action for action in actions if action is not None]
    return kept, len(actions) - len(kept)


def _believable(topic: Topic, version: int, line: bytes) -> dict | None:
    for mend in (lambda found: found, lambda found: _with_true_statistics(topic, found)):
        try:
            action = mend(parse_actions(line)[0])
            check_statistics(topic.path, parse_commit(version, json.dumps(action).encode(), topic.path))
            return action
        except _WRONG:
            continue
    return None


def _with_true_statistics(topic: Topic, action: dict) -> dict:
    path = action["add"]["path"]
    return {"add": file_add(topic.path, unquote(path)) | {"path": path}}


def _text_of(kept: list[dict]) -> str:
    actions = [action for action in kept if "commitInfo" in action]
    actions = actions or [{"commitInfo": {"operation": "MEND", "operationParameters": {}}}]
    actions += [action for action in kept if "commitInfo" not in action]
    return "\n".join(map(json.dumps, actions)) + "\n"


def _remove_foreign(topic: Topic, foreign: tuple[ForeignFile, ...], dry_run: bool) -> list[Mended]:
    if not foreign:
        return []
    table = open_as_far_as_it_goes(topic.path)
    names = {file.path for file in foreign}
    removes = [
        {"path": row["path"], "size": row["size_bytes"], "partitionValues": _values(topic, row)}
        for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()
        if unquote(row["path"]) in names
    ]
    gone = {unquote(remove["path"]) for remove in removes}
    if removes and not dry_run:
        commit(topic.path, itertools.count(TableLog(topic.path).latest() + 1), [], {}, removes)
    return [
        Mended(file.version, "foreign", file.rows, f"rows that are not valid messages, in file {file.path}")
        for file in foreign
        if file.path in gone
    ]


def _values(topic: Topic, row: dict) -> dict[str, str | None]:
    if not topic.partitions:
        return {}
    value = row.get("partition.partition")
    return {"partition": None if value is None else str(value)}
