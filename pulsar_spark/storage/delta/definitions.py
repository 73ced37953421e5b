"""Create tables, and read what their first commit says they are: JSON with the table's name and layout version."""

import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from pulsar_spark.errors import CorruptState, NewerLayout, NotARoot, OlderLayout
from pulsar_spark.storage.delta.commits import WRITER_VERSION
from pulsar_spark.storage.delta.dropped import create_where_nothing_is, has_rest, is_dropped
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.table_lock import append_lock
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.durability import is_durable, sync_file, sync_folder, sync_parents
from pulsar_spark.storage.store.store import AnyPath, StrPath, path_of, store_of
from pulsar_spark.table_specs import LAYOUT_VERSION, Column, TableSpec

OLDER_LAYOUT_REMEDY = "read it with the release that wrote it, and publish its messages into a new root"
FORMAT, _CONFIGURATION = "pulsar_spark", {"delta.enableChangeDataFeed": "true"}


class Definition(NamedTuple):
    """The content of a table's creating commit."""

    table: str
    table_id: str
    properties: dict


def create_table(
    path: StrPath,
    spec: TableSpec,
    properties: dict | None = None,
    partition_by: tuple[str, ...] = (),
    statistics_of: tuple[str, ...] = (),
    not_null: tuple[str, ...] = (),
    comment: str = "",
) -> bool:
    """Create the table unless it exists; whether this call created it.

    *properties* extend its definition. Spark collects statistics of *statistics_of* (empty: of all columns). Delta
    refuses nulls in *not_null*. These columns, which a program that appends by itself lacks, also have the *comment*.
    """
    if TableLog(path).latest() >= 0 and not has_rest(path):
        return False
    description = json.dumps(
        {"format": FORMAT, "table": spec.name, "layout_version": LAYOUT_VERSION, **(properties or {})}, sort_keys=True
    )
    configuration = _CONFIGURATION | (
        {"delta.dataSkippingStatsColumns": ",".join(statistics_of)} if statistics_of else {}
    )
    table = path_of(path)
    schema = pa.schema([_field(column, column.name in not_null, comment) for column in spec.columns])

    def draw(draft: AnyPath) -> AnyPath:
        forks.use()
        try:
            DeltaTable.create(
                str(draft),
                schema,
                description=description,
                partition_by=list(partition_by) or None,
                configuration=configuration,
            )
        except OSError as fault:
            raise _as_python_says(fault, table) from fault
        return TableLog(draft).file(0)

    if isinstance(table, Path):
        return _create_beside(table, draw)
    with tempfile.TemporaryDirectory() as folder:
        return create_where_nothing_is(table, draw(path_of(folder) / "table").read_bytes())


def _field(column: Column, is_required: bool, comment: str) -> pa.Field:
    metadata = {"comment": f"{comment}: {column.meaning}"} if comment and is_required else None
    return pa.field(column.name, column.type, nullable=not is_required, metadata=metadata)


def _as_python_says(fault: OSError, table: AnyPath) -> OSError:
    """``deltalake``'s error for a fault of the disk, as an OSError of *table* with its number.

    >>> _as_python_says(OSError("No space left on device (os error 28)"), "orders")
    OSError(28, 'No space left on device')
    """
    number = re.search(r"\(os error (\d+)\)", str(fault))
    return OSError(int(number[1]), os.strerror(int(number[1])), str(table)) if number else fault


def _create_beside(table: Path, draw: Callable[[AnyPath], AnyPath]) -> bool:
    store, draft, log_folder = store_of(table), table.with_name(f".new-{uuid.uuid4().hex}"), table / "_delta_log"
    check_there(table)
    try:
        table.parent.mkdir(parents=True, exist_ok=True)  # so that a failure is an OSError and not deltalake's error
        first = draw(draft)
        log_folder.mkdir(parents=True, exist_ok=True)
        if is_durable(table):
            sync_file(first)
            sync_folder(table)
            sync_parents(table, table.absolute().parents[2])
        with append_lock(table):
            store.link(first, log_folder / first.name)
    except FileExistsError:
        if TableLog(table).latest() < 0:
            raise  # something that is no table is in the way
        return False
    finally:
        store.remove_folder(draft)
    if is_durable(table):
        sync_folder(log_folder)
    return True


def read_definition(path: StrPath) -> Definition:
    """The table's definition; FileNotFoundError without a table.

    :class:`NotARoot` for another program's table, :class:`OlderLayout` or :class:`NewerLayout` for another layout,
    :class:`CorruptState` for an incomplete one.
    """
    log = TableLog(path)
    if log.latest() < 0 and not (log.folder / "_last_checkpoint").exists():
        raise FileNotFoundError(path)  # also if creation failed and left only a folder
    description: str | None = None
    table_id = ""
    try:
        first = log.first_actions()
        if is_dropped(first):
            raise FileNotFoundError(path)
        for action in first or ():
            if (minimum_writer := action.get("protocol", {}).get("minWriterVersion", 0)) > WRITER_VERSION:
                raise NewerLayout(
                    f"table {str(path)!r} requires Delta writer version {minimum_writer}, this release writes up to "
                    f"{WRITER_VERSION}: install a newer pulsar_spark"
                )
            if "metaData" in action:
                description, table_id = action["metaData"].get("description"), action["metaData"]["id"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as broken:
        raise CorruptState(
            f"table {str(path)!r}: its first commit cannot be read ({broken}); restore it or delete the folder"
        ) from broken
    if first is None:
        try:
            metadata = open_table(path).metadata()
            description, table_id = metadata.description, str(metadata.id)
        except (TableNotFoundError, CorruptState) as broken:
            raise CorruptState(
                f"table {str(path)!r} is incomplete ({broken}): delete the folder and create it again"
            ) from broken
    return parse_definition(path, description, table_id)


def parse_definition(path: StrPath, description: str | None, table_id: str) -> Definition:
    """The definition in a table's *description*; raises as :func:`read_definition` does."""
    try:
        properties = json.loads(description or "")
        is_ours = (
            properties.pop("format") == FORMAT
            and isinstance(properties["table"], str)
            and isinstance(properties["layout_version"], int)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise NotARoot(f"table {str(path)!r} was not made by pulsar_spark: give another root")
    version = properties.pop("layout_version")
    has = f"table {str(path)!r} has layout {version}, this release reads layout {LAYOUT_VERSION} alone"
    if version > LAYOUT_VERSION:
        raise NewerLayout(f"{has}: install a newer pulsar_spark, with 'pip install --upgrade pulsar_spark'")
    if version < LAYOUT_VERSION:
        raise OlderLayout(f"{has}: {OLDER_LAYOUT_REMEDY}")
    return Definition(properties.pop("table"), table_id, properties)
