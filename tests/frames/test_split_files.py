"""The files that rows are split into, without Spark: whose row is where, of files that lack columns, too."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_spark.frames.deliveries import row_split
from pulsar_spark.frames.deliveries.lane_deliveries import LaneRange
from pulsar_spark.protocol.keys.hash_ranges import SLOTS
from pulsar_spark.protocol.keys.lanes import HashRange, LaneHashes
from pulsar_spark.protocol.keys.sticky_key import sticky_key_hash
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.table_specs import MESSAGES

LOWER = LaneHashes(SLOTS, (HashRange(0, 30_000), HashRange(60_000, 65_535)))
UPPER = LaneHashes(SLOTS, (HashRange(30_001, 50_000),))
ENTRIES, TO_POSITION = 300, 5
COLUMNS = ("payload", "partition_key", "producer_name", "properties", "uuid", "sticky_key_hash", "publish_id")


def _lane_range(lane: LaneHashes, first: int, last: int) -> LaneRange:
    return LaneRange(PositionRange(-1, first, last), lane, 1, 7)


RANGES = {
    "a": {_lane_range(LOWER, 20, 400)},
    "b": {_lane_range(UPPER, 30, 90), _lane_range(UPPER, 150, 599), _lane_range(LOWER, 450, 500)},
    "c": {_lane_range(LOWER, 401, 449)},
}


def _rows(first: int) -> list[dict]:
    return [
        {
            "entry_id": entry_id,
            "payload": f"{entry_id}".encode(),
            "partition_key": f"k{entry_id % 70}",
            "publish_id": "p",
            "batch_size": 1,
            "producer_name": "one" if entry_id % 2 else None,
            "properties": [("a", "b")],
            "sticky_key_hash": sticky_key_hash(f"k{entry_id % 70}"),
        }
        for entry_id in range(first, first + ENTRIES)
    ]


@pytest.fixture
def jobs(tmp_path) -> row_split.Jobs:
    """Two files: of one only the entries from 10 on are meant, the other has neither names nor hashes."""
    jobs, groups = [], []
    for number, lacking in enumerate([(), ("producer_name", "properties", "sticky_key_hash", "uuid")]):
        names = [name for name in MESSAGES.schema.names if name not in ("partition", *lacking)]
        schema = pa.schema([MESSAGES.schema.field(name) for name in names])
        rows = pa.Table.from_pylist(_rows(number * ENTRIES), schema=schema)
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=70)
        first = max(10, number * ENTRIES)
        run = SimpleNamespace(
            path=f"{number}.parquet",
            to_position=TO_POSITION,
            first_entry_id=first,
            last_entry_id=(number + 1) * ENTRIES - 1,
            ledger_id=number,
        )
        footer = pq.read_metadata(tmp_path / run.path)
        for group in range(footer.num_row_groups):
            jobs.append(row_split.Job(-1, run, group, frozenset(names)))
            groups.append(footer.row_group(group))
    columns = frozenset(name for group in groups for name in row_split.with_values(group))
    return row_split.Jobs(jobs, columns, row_split.same_in_all(jobs, groups))


@pytest.mark.parametrize("at_once", [1 << 17, 50, 7])
def test_each_row_is_with_whom_it_was_dealt_to(tmp_path, jobs, at_once, monkeypatch):
    """However many rows are read, and pieces written, at a time."""
    monkeypatch.setattr(row_split, "_PIECE_ROWS", at_once)
    monkeypatch.setattr(row_split, "_LEAST_ROWS", 50)
    for name in RANGES:
        (tmp_path / name).mkdir()
    assert jobs.same == {"publish_id": "p", "batch_size": 1, "partition": -1}
    row_split.Splitter(tmp_path, RANGES, COLUMNS, tmp_path).run(jobs)
    for name, ranges in RANGES.items():
        files = [*(tmp_path / name).iterdir()]
        assert all("uuid" not in pq.read_schema(file).names for file in files), "it has no value anywhere"
        assert all({"publish_id", "partition"}.isdisjoint(pq.read_schema(file).names) for file in files)
        found = [row for file in files for row in pq.read_table(file).to_pylist()]
        assert sorted(found, key=lambda row: row["position"]) == _expected(ranges)
        assert len(found) > 10


def _expected(ranges: set[LaneRange]) -> list[dict]:
    expected = []
    for row in [*_rows(0), *_rows(ENTRIES)][10:]:
        position, is_first = row["entry_id"] + TO_POSITION, row["entry_id"] < ENTRIES
        is_mine = [
            range_.first <= position <= range_.last and range_.hashes.holds(np.array([row["sticky_key_hash"]]))[0]
            for range_ in ranges
        ]
        if any(is_mine):
            place = {"ledger_id": int(not is_first), "position": position}
            columns = {name: row[name] for name in COLUMNS if name not in ("uuid", "publish_id")}
            lacking = {} if is_first else {"producer_name": None, "properties": None}
            expected.append(columns | lacking | place)
    return expected


def test_an_empty_map_is_a_value(tmp_path):
    properties = MESSAGES.schema.field("properties").type
    rows = pa.table({"uuid": pa.nulls(2, pa.string()), "properties": pa.array([[], []], properties)})
    pq.write_table(rows, tmp_path / "1.parquet")
    group = pq.read_metadata(tmp_path / "1.parquet").row_group(0)
    assert {*row_split.with_values(group)} == {"properties"}


def test_what_any_row_lacks_or_has_otherwise_is_not_the_same_in_all(tmp_path):
    type_of = {name: MESSAGES.schema.field(name).type for name in ("publish_id", "producer_name", "publish_time")}
    rows = [
        {"publish_id": "p", "producer_name": "one", "publish_time": 1_700_000_000_123_456},
        {"publish_id": "p", "producer_name": None, "publish_time": 1_700_000_000_123_456},
        {"publish_id": "q", "producer_name": "one", "publish_time": 1_700_000_000_123_456},
    ]
    columns = {name: pa.array([row[name] for row in rows], type_) for name, type_ in type_of.items()}
    pq.write_table(pa.table(columns), tmp_path / "1.parquet", row_group_size=2)
    footer = pq.read_metadata(tmp_path / "1.parquet")
    run = SimpleNamespace(ledger_id=3)
    jobs = [row_split.Job(partition, run, partition, frozenset(type_of)) for partition in (0, 1)]
    same = row_split.same_in_all(jobs, [footer.row_group(group) for group in (0, 1)])
    assert same == {"ledger_id": 3, "publish_time": columns["publish_time"][0].as_py()}
    assert row_split.same_in_all([], []) == {}
