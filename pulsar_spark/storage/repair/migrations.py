"""Numbered migrations, each of which brings a root from one layout version to the next.

A migration adds nullable columns to each table by a commit of metadata, so both releases may read and write meanwhile.
The last step replaces the first commit of ``cursor_ledger``, which every release reads first. So a crash leaves the
root at the old or the new version, and running again finishes.

The lease's holder migrates: a broker at its start, or ``pulsar-spark migrate``. Older releases then get
:class:`NewerLayout`. A broken topic stays as it is, and ``doctor`` names it.
"""

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from pulsar_spark.errors import DOCTOR, BrokerFenced, CorruptState, InvalidRequest, NotAllowedError, OlderLayout
from pulsar_spark.storage.delta.actions import KNOWN_FEATURES, WRITER_FEATURES_VERSION
from pulsar_spark.storage.delta.commits import WRITER_VERSION, commit, replace_commit
from pulsar_spark.storage.delta.definitions import parse_definition, read_definition
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import metadata_of, open_table
from pulsar_spark.storage.delta.table_lock import append_lock, lock_where_there_is_one
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.repair.examination import tables_of
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.store.store import AnyPath, store_of
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.storage.topics.topics import layout_version
from pulsar_spark.table_specs import BROKER_TABLES, CURSOR_LEDGER, LAYOUT_VERSION, MESSAGES, TABLES, TableSpec

_SPECS = {spec.name: spec for spec in TABLES}
_REFUSALS = (CorruptState, InvalidRequest, DeltaError, OSError, pa.ArrowException)
log = logging.getLogger(__name__)


class Migration(NamedTuple):
    """One step to version ``to``. ``change`` maps a table's fields, as Delta writes them, to new ones; it may be called
    again.
    """

    to: int
    what: str
    change: Callable[[list[dict], TableSpec, int], list[dict]]


class Changed(NamedTuple):
    """The columns added to one table, or to be added; ``error`` says why it was left."""

    table: str
    version: int
    columns: tuple[str, ...]
    error: str | None = None


class Migrated(NamedTuple):
    """The root's versions ``before`` and ``after``, and the changes in order."""

    before: int
    after: int
    changes: tuple[Changed, ...]

    @property
    def brought(self) -> dict[int, str]:
        """Descriptions of the versions since ``before``."""
        return {migration.to: migration.what for migration in MIGRATIONS if self.before < migration.to <= self.after}

    @property
    def left(self) -> list[Changed]:
        """Topics that were left as they are."""
        return [change for change in self.changes if change.error]


def add_columns(fields: list[dict], spec: TableSpec, to: int) -> list[dict]:
    """Add to *fields* the missing columns of *spec* since version *to*; :class:`NotAllowedError` if one exists with
    another type.
    """
    there = {field["name"].lower(): field for field in fields}
    wanted = pa.schema([(column.name, column.type) for column in spec.columns if column.since == to])
    added = []
    for field in json.loads(Schema.from_arrow(wanted).to_json())["fields"]:
        known = there.get(field["name"])
        if known is None:
            added.append(field)
        elif (known["name"], known["type"]) != (field["name"], field["type"]):
            raise NotAllowedError(
                f"column {known['name']!r} of type {known['type']!r} stands where {field['name']!r} of type "
                f"{field['type']!r} belongs: remove it from the table, then run 'pulsar-spark migrate'"
            )
    return fields + added


MIGRATIONS = (
    Migration(
        2,
        "columns for Key_Shared (hashes of messages, hash ranges of consumers, lanes), compression and encryption",
        add_columns,
    ),
)


def is_behind(layout: Layout) -> bool:
    """Is the layout of the root or of a broker's table older than this release's? Reads first commits only."""
    return any(
        read_definition(layout.broker_table(spec.name)).layout_version < LAYOUT_VERSION
        for spec in BROKER_TABLES
        if TableLog(layout.broker_table(spec.name)).exists()
    )


def migrate_at_start(layout: Layout, broker_id: str) -> None:
    """Migrate the root, if it is old, for a broker that holds its lease, and log it."""
    if not is_behind(layout):
        return
    began = time.monotonic()
    before = layout_version(layout)
    log.info("broker %s upgrades root %s from layout %d to %d", broker_id, layout.root, before, LAYOUT_VERSION)
    for migration in MIGRATIONS:
        if migration.to > before:
            log.info("layout %d: %s", migration.to, migration.what)
    done = migrate_root(layout)
    for change in done.left:
        log.warning("topic %s is not upgraded: %s", change.table, change.error)
    log.info("root %s has layout %d after %.1f s", layout.root, done.after, time.monotonic() - began)


def migrate_by_hand(layout: Layout, *, dry_run: bool = False) -> Migrated:
    """Migrate without a broker, or only list changes; :class:`NotAllowedError` while one serves the root, except for a
    dry run.
    """
    if dry_run:
        return migrate_root(layout, dry_run=True)
    leases = [BundleLease(bundle, f"migrate-{os.getpid()}") for bundle in layouts_of(layout)]

    def hold() -> None:
        if not all(lease.take() for lease in leases):
            raise BrokerFenced(f"another broker has taken {str(layout.root)!r} and migrates it")

    try:
        _take_all(layout, leases)
        return migrate_root(layout, hold=hold)
    finally:
        for lease in leases:
            with contextlib.suppress(OSError):  # the lease expires by itself
                lease.let_go()


def _take_all(layout: Layout, leases: Sequence[BundleLease]) -> None:
    """Take the leases of all bundles; :class:`NotAllowedError` if a broker holds one."""
    for lease in leases:
        try:
            holder = lease.sure_holder()
            is_ours = holder is None and lease.take()
        except OSError as fault:
            raise _not_brought_up(layout, layout_version(layout), fault) from fault
        if not is_ours:
            holder = holder or lease.holder()
            who = f"broker {holder.broker_id!r} (process {holder.pid} on {holder.host})" if holder else "a broker"
            raise NotAllowedError(
                f"{who} serves {str(layout.root)!r}: stop it first; a broker of this release migrates the root itself"
            )


def raise_layout(layout: Layout, version: int) -> None:
    """Raise a bundle's tables to at least layout *version*, for its lease's holder."""
    for path in _broker_tables(layout):
        _redefine(path, version)
        with lock_where_there_is_one(path):
            while read_definition(path).layout_version < version:  # its first commit is gone
                table = open_table(path)
                described = {"description": _described(table.metadata().description, version)}
                commit(path, [table.version() + 1], [], {}, metadata=metadata_of(table) | described)


def migrate_root(layout: Layout, *, hold: Callable[[], None] = lambda: None, dry_run: bool = False) -> Migrated:
    """Run the missing migrations, for the lease's holder; *hold* is called between tables.

    :class:`OlderLayout` if the disk refuses, :class:`CorruptState` if a broker's table is broken.
    """
    before = after = layout_version(layout)
    changes: list[Changed] = []
    try:
        for migration in MIGRATIONS:
            for change in _change_tables(layout, migration, dry_run):
                changes.append(change)
                hold()
            if not dry_run:
                for path in (path for bundle in layouts_of(layout) for path in _broker_tables(bundle)):
                    _redefine(path, migration.to)
                    after = max(after, migration.to)
    except (OSError, DeltaError) as fault:
        if not is_fault_of_disk(fault):
            raise CorruptState(f"root {str(layout.root)!r} cannot be upgraded: {fault}; {DOCTOR}") from fault
        raise _not_brought_up(layout, after, fault) from fault
    return Migrated(before, max(before, MIGRATIONS[-1].to) if dry_run else after, tuple(changes))


def _not_brought_up(layout: Layout, version: int, fault: Exception) -> OlderLayout:
    return OlderLayout(
        f"root {str(layout.root)!r} has layout {version} and cannot be upgraded to {LAYOUT_VERSION}: {fault}; "
        "once its disk is writable, start a broker or run 'pulsar-spark migrate'"
    )


def _change_tables(layout: Layout, migration: Migration, dry_run: bool) -> Iterator[Changed]:
    """Change each table, topics first and ``cursor_ledger`` last, so that the root's version never promises missing
    columns.
    """
    tables = sorted(tables_of(layout), key=lambda found: (found[2] is None, found[0] == CURSOR_LEDGER.name))
    for name, path, topic in tables:
        spec = MESSAGES if topic else _SPECS[name]
        try:
            if TableLog(path).latest() < 0 or read_definition(path).table != spec.name:
                continue
            columns = _change_table(path, spec, migration, dry_run)
        except _REFUSALS as broken:
            if topic is None or is_fault_of_disk(broken):
                raise
            yield Changed(name, migration.to, (), f"{type(broken).__name__}: {broken}")
        else:
            if columns is not None:
                yield Changed(name, migration.to, columns)


def _change_table(path: AnyPath, spec: TableSpec, migration: Migration, dry_run: bool) -> tuple[str, ...] | None:
    """The columns added; None if the table has the version."""
    with contextlib.nullcontext() if dry_run else lock_where_there_is_one(path):
        while True:
            table = open_table(path)
            found = table.metadata()
            definition = parse_definition(path, found.description, str(found.id))
            if definition.layout_version >= migration.to:
                return None
            _check_protocol(table)
            schema = json.loads(table.schema().to_json())
            fields = migration.change(schema["fields"], spec, migration.to)
            added = tuple(field["name"] for field in fields if field not in schema["fields"])
            metadata = metadata_of(table) | {
                "description": _described(found.description, migration.to),
                "schemaString": json.dumps(schema | {"fields": fields}),
            }
            if dry_run or commit(path, [table.version() + 1], [], {}, metadata=metadata) is not None:
                return added


def _check_protocol(table: DeltaTable) -> None:
    """:class:`NotAllowedError` for a table whose columns are more than a name and a type."""
    protocol = table.protocol()
    unknown = set(protocol.writer_features or ()) - KNOWN_FEATURES
    if unknown or protocol.min_writer_version not in (*range(WRITER_VERSION + 1), WRITER_FEATURES_VERSION):
        what = f"table feature {min(unknown)!r}" if unknown else f"writer version {protocol.min_writer_version}"
        raise NotAllowedError(f"the table requires {what}, which this release does not write")


def _described(description: str, version: int) -> str:
    return json.dumps(json.loads(description) | {"layout_version": version}, sort_keys=True)


def _broker_tables(layout: Layout) -> list[AnyPath]:
    """Existing broker tables, ``cursor_ledger``, which has the root's version, first."""
    specs = sorted(BROKER_TABLES, key=lambda spec: spec.name != CURSOR_LEDGER.name)
    paths = [layout.broker_table(spec.name) for spec in specs]
    return [path for path in paths if TableLog(path).exists()]


def _redefine(path: AnyPath, version: int) -> None:
    """Let the table's first commit name at least *version*. If it is gone, the current description counts
    (:func:`read_definition`).
    """

    def redefined(content: bytes | None) -> str | None:
        if content is None or read_definition(path).layout_version >= version:
            return None
        actions = [json.loads(line) for line in content.splitlines()]
        for action in actions:
            if "metaData" in action:
                action["metaData"]["description"] = _described(action["metaData"]["description"], version)
        return "\n".join(map(json.dumps, actions)) + "\n"

    store_of(path).change(
        TableLog(path).first_commit(),
        redefined,
        lambda: append_lock(path),
        lambda _, text: replace_commit(path, 0, text, keep_as=None),
    )
