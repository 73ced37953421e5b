"""Rounds that must stay: from the first that delivered something above its cursor's mark-delete position."""

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.cursor_ledger.range_rows import by_position
from pulsar_spark.storage.delta.data_files import read_file
from pulsar_spark.storage.entries.topic_files import READ_ERRORS, raise_unless_damage
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.upkeep.joining import DataFile
from pulsar_spark.table_specs import CURSOR_LEDGER

NEVER = 1 << 62
_DELIVERY = [*CursorKey._fields, "kind", "status", "round", "delivery_round", "first", "last", "positions"]


def mark_deletes(snapshot: pa.Table) -> dict[CursorKey, int]:
    """The mark-delete position of every cursor in a *snapshot*."""
    rows = snapshot.filter(pc.equal(snapshot["kind"], "cursor"))
    columns = (rows[name].to_pylist() for name in (*CursorKey._fields, "mark_delete_position", "is_removed"))
    return {CursorKey(*key): position for *key, position, is_removed in zip(*columns) if not is_removed}


def first_kept_round(table: AnyPath, files: Iterable[DataFile], mark_delete: Mapping[CursorKey, int]) -> int:
    """The first round of the first file that is unreadable or delivered above *mark_delete*; :data:`NEVER` for none."""
    for file in sorted(files, key=lambda file: file.first_round or 0):
        try:
            rows = read_file(table, file.path, CURSOR_LEDGER.schema, _DELIVERY)
        except READ_ERRORS as error:
            raise_unless_damage(error)
            return file.first_round or 0
        if _has_delivered_above(rows, mark_delete):
            return file.first_round or 0
    return NEVER


def _has_delivered_above(rows: pa.Table, mark_delete: Mapping[CursorKey, int]) -> bool:
    is_delivery = pc.and_(pc.equal(rows["kind"], "range"), pc.equal(rows["status"], PENDING))
    is_delivery = pc.and_(is_delivery, pc.equal(rows["delivery_round"], rows["round"]))
    last = by_position(rows.filter(is_delivery)).group_by(list(CursorKey._fields)).aggregate([("last", "max")])
    columns = (last[name].to_pylist() for name in (*CursorKey._fields, "last_max"))
    return any(position > mark_delete.get(CursorKey(*key), NEVER) for *key, position in zip(*columns))
