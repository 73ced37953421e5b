"""Rows in commits: what a reader without the files finds, and which rows are too many."""

from datetime import datetime, timezone

import pyarrow as pa
import pytest

from pulsar_spark.storage.cursor_ledger.client_rows import as_objects, client_rows, from_commit
from pulsar_spark.storage.delta import reader_rows as module
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.reader_rows import Readers, objects_of, rows_from
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.table_specs import CURSOR_LEDGER

INSTANT = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
PLACE = {"topic": "t", "topic_id": "id", "partition": -1, "subscription": "s", "consumer_id": "a-0"}
DELIVERED = {"kind": "range", "status": "pending", "first": 3, "last": 9, "round": 7, "delivery_round": 7}
ROWS = [
    {"kind": "round", "round": 7, "requests_version": 12, "round_time": INSTANT},
    {"kind": "reply", "round": 7, "request_id": "a-1", "error": "ConsumerBusy", "text": "é\n"},
    {"kind": "consumer", "round": 7, **PLACE, "permits": 3},
    {"kind": "consumer", "round": 7, **PLACE, "is_active": False},
    {"kind": "consumer", "round": 7, **PLACE, "is_removed": True},
    {**DELIVERED, **PLACE, "positions": [3, 9, 4], "chunks": b"\x00\xff", "ack_set": [-1, 5]},
    {**DELIVERED, **PLACE, "delivery_round": 6},
    {**DELIVERED, **PLACE, "status": "acknowledged", "delivery_round": None},
]


def _shown(rows: list[dict]) -> list[dict]:
    return [row | {"positions": row["positions"] is not None and row["positions"].tolist()} for row in rows]


def test_clients_find_in_a_commit_what_the_file_has_for_them(tmp_path):
    prepare_root(Layout(tmp_path))
    path, rows = Layout(tmp_path).broker_table("cursor_ledger"), client_rows(CURSOR_LEDGER.rows(ROWS))
    assert [row["kind"] for row in rows.to_pylist()] == ["round", "reply", "consumer", "consumer", "range"]
    AppendTable(path).append_fenced(CURSOR_LEDGER.rows(ROWS), 0, Readers(["a"], objects_of(rows)))
    found = TableLog(path).commit(1).reader_rows
    assert _shown(from_commit(found)) == _shown(as_objects(rows))
    assert set(found[0]) == {"kind", "round", "requests_version"}


def test_instants_and_missing_columns_are_as_in_the_table():
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("name", pa.string()), ("late", pa.int64())])
    rows = [{"at": INSTANT, "name": None, "late": None}, {"at": None, "name": "b", "late": None}]
    found = objects_of(pa.Table.from_pylist(rows, schema))
    assert rows_from(found, schema) == rows and [len(row) for row in found] == [1, 1]


@pytest.mark.parametrize("name, limit, rows", [("MOST_ROWS", 2, 3), ("MOST_BYTES", 23, 3)])
def test_too_many_rows_are_not_in_the_commit(monkeypatch, name, limit, rows):
    monkeypatch.setattr(module, name, limit)
    numbers = pa.table({"number": pa.chunked_array([list(range(rows))])})
    assert objects_of(numbers) is None and len(objects_of(numbers.slice(1))) == rows - 1
