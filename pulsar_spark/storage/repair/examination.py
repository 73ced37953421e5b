"""Examine a root without a broker: what is broken, what that means, and which command repairs it."""

import contextlib
from collections.abc import Collection, Iterator
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import DeltaError

from pulsar_spark.errors import CorruptState, NewerLayout, NotARoot, OlderLayout, TopicStopped
from pulsar_spark.protocol.topics.topic_name import TopicName
from pulsar_spark.storage.cursor_ledger.cursor_ledger import LatestRows, read_latest
from pulsar_spark.storage.delay_index.delay_segments import Places
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from pulsar_spark.storage.delta.definitions import OLDER_LAYOUT_REMEDY, read_definition
from pulsar_spark.storage.delta.log import TableLog, read_actions
from pulsar_spark.storage.delta.scan import open_as_far_as_it_goes, open_table, sizes_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import STRETCH
from pulsar_spark.storage.ledgers.needed_runs import last_runs
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.repair.broken_log import broken_checkpoints, broken_commits
from pulsar_spark.storage.repair.condition import check_features
from pulsar_spark.storage.store.durability import DEFAULT, settings_fault, settings_path
from pulsar_spark.storage.store.store import AnyPath, store_of
from pulsar_spark.storage.topics.bundles import layout_of, layouts_of
from pulsar_spark.table_specs import BROKER_TABLES, CURSOR_LEDGER, DELAY_INDEX, LEDGERS, MESSAGES, REPROCESSING, SCHEMAS

REPAIR = "pulsar-spark repair"
UNREADABLE = (CorruptState, DeltaError, OSError, pa.ArrowInvalid)
_RESTORE = "restore it from a backup"


class Finding(NamedTuple):
    """A defect of a topic (full name) or broker's ``table``; ``command`` repairs it or says what to do."""

    kind: str
    table: str
    path: str
    version: int | None
    text: str
    command: str


def examine_root(layout: Layout) -> list[Finding]:
    """All findings, the root's own first, then by table."""
    findings = list(_examine_settings(layout))
    tables = list(tables_of(layout))
    for name, path, topic in tables:
        findings += examine_table(name, path, topic)
    if not findings:
        for bundle in layouts_of(layout):
            findings += _examine_delay_index(bundle)
            its = [
                (str(topic), path)
                for _, path, topic in tables
                if topic and layout_of(layout, topic).bundle == bundle.bundle
            ]
            findings += _examine_state(bundle, its)
    return findings


def tables_of(layout: Layout) -> Iterator[tuple[str, AnyPath, TopicName | None]]:
    """(name, path, topic) of every table of the root; topic is None for a broker's table."""
    for bundle in layouts_of(layout):
        for spec in BROKER_TABLES:
            yield spec.name, bundle.broker_table(spec.name), None
    for spec in (REPROCESSING, SCHEMAS):
        path = layout.root_table(spec.name)
        if path.exists():
            yield spec.name, path, None
    for tenant, namespace in layout.namespaces():
        for topic in layout.topics(tenant, namespace):
            yield str(topic), layout.topic(topic), topic


def _examine_settings(layout: Layout) -> Iterator[Finding]:
    fault = settings_fault(layout.root)
    if fault:
        path = settings_path(layout.root)
        text = f"{str(path)!r} cannot be read ({fault}): durability is {DEFAULT!r} meanwhile"
        yield Finding("settings", "", str(layout.root), None, text, "pulsar-spark durability set fsync")


def examine_table(name: str, path: AnyPath, topic: TopicName | None) -> Iterator[Finding]:
    try:
        definition = read_definition(path)
    except FileNotFoundError:
        if topic is None:
            text = "the broker's table is missing: its content is lost, and the next broker creates an empty one"
            yield Finding("missing_table", name, str(path), None, text, _RESTORE)
        return
    except (CorruptState, NotARoot, NewerLayout, OlderLayout) as refused:
        kind = "foreign_table" if isinstance(refused, NotARoot) else "definition"
        yield Finding(kind, name, str(path), 0, str(refused), _remedy_of_definition(refused))
        return
    expected = (MESSAGES.name, str(topic)) if topic else (name, definition.properties.get("topic"))
    if (definition.table, definition.properties.get("topic")) != expected:
        text = f"the folder holds table {definition.table!r} of {definition.properties.get('topic')!r}"
        yield Finding("foreign_table", name, str(path), 0, text, "move the folder to where it belongs")
        return
    broken = list(broken_commits(path))
    for version, why in broken:
        text = f"commit {version} {why}: its content is missing, and readers stop before it"
        yield Finding("broken_commit", name, str(path), version, text, REPAIR)
    for checkpoint in broken_checkpoints(path):
        text = f"checkpoint {checkpoint.name!r} cannot be read: the table cannot be opened, but nothing is lost"
        yield Finding("broken_checkpoint", name, str(path), None, text, REPAIR)
    for file, why in _broken_files(path, {version for version, _ in broken}):
        meaning, command = "its content is lost: restore it", _RESTORE
        if topic:
            meaning = "its messages are lost: restore it, or skip them with 'pulsar-spark subscriptions skip-lost'"
            command = f"pulsar-spark subscriptions skip-lost {name} -s SUBSCRIPTION"
        yield Finding("missing_file", name, str(path), None, f"data file {file!r} {why}; {meaning}", command)


def _remedy_of_definition(refused: Exception) -> str:
    if isinstance(refused, NewerLayout):
        return "install a newer pulsar_spark"
    if isinstance(refused, OlderLayout):
        return OLDER_LAYOUT_REMEDY
    if isinstance(refused, NotARoot):
        return "move the folder out of the root"
    return f"{_RESTORE}, or delete the folder"


def named_files(path: AnyPath, without: Collection[int] = ()) -> dict[str, int]:
    """The table's data files with their sizes, from the log without the versions *without*."""
    log, files, opened = TableLog(path), {}, -1
    with contextlib.suppress(CorruptState, DeltaError):  # if not even the first commit can be read
        table = open_as_far_as_it_goes(path)
        opened, files = table.version(), sizes_of(table)
    for version in sorted(log.versions()):
        if version > opened and version not in without:
            for action in read_actions(log.file(version)):
                if "add" in action:
                    files[unquote(action["add"]["path"])] = action["add"]["size"]
                elif "remove" in action:
                    files.pop(unquote(action["remove"]["path"]), None)
    return files


def _broken_files(path: AnyPath, broken: set[int]) -> Iterator[tuple[str, str]]:
    named = named_files(path, broken)
    found = store_of(path).sizes(path, named)
    for name, size in named.items():
        if name not in found:
            yield name, "is gone"
        elif found[name] != size:
            yield name, f"has {found[name]} bytes instead of {size}"


def _examine_state(layout: Layout, topics: list[tuple[str, AnyPath]]) -> Iterator[Finding]:
    """Whether the state can be read and every topic numbered; for sound tables only."""
    try:
        latest = read_latest(layout)
    except UNREADABLE as broken:
        path, text = layout.broker_table(CURSOR_LEDGER.name), f"the state cannot be read: {broken}"
        yield Finding("state", CURSOR_LEDGER.name, str(path), None, text, _RESTORE)
        return
    for name, table in topics:
        yield from _examine_numbering(layout, name, table, latest)


def _examine_delay_index(layout: Layout) -> Iterator[Finding]:
    table = DelayTable(layout)
    for lost in table.load(Places()).lost:
        text = f"the index of delayed messages is incomplete: {lost.why}; a broker rebuilds it when it needs it"
        yield Finding("delay_index", DELAY_INDEX.name, str(table.path), None, text, f"{REPAIR} delay-index")


def _examine_numbering(layout: Layout, name: str, path: AnyPath, latest: LatestRows) -> Iterator[Finding]:
    topic_id, ledgers = read_definition(path).table_id, layout.broker_table(LEDGERS.name)
    try:
        last_runs(open_table(ledgers), topic_id, STRETCH)
    except CorruptState as broken:
        yield Finding("ledgers", LEDGERS.name, str(ledgers), None, f"topic {name!r}: {broken}", REPAIR)
    try:
        for commit in TableLog(path).commits(latest.numbered_until(topic_id)):
            check_features(path, commit)
            number_commit(path, commit, {}, set())
    except UNREADABLE as broken:
        command = f"pulsar-spark topics mend {name}"
        if isinstance(broken, TopicStopped):
            command = "remove the feature from the table with Spark SQL"
        yield Finding("not_numbered", name, str(path), None, f"the topic stops here: {broken}", command)
