"""Small files of a topic joined to larger ones: the same rows, in row groups that a reader can hold."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake import Field as DeltaField

from pulsar_spark.storage.delta import data_files
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.upkeep import joining
from pulsar_spark.storage.upkeep.upkeep import optimize
from pulsar_spark.table_specs import MESSAGES
from tests.storage.test_tables import message


@pytest.mark.parametrize("partitions", [0, 2])
def test_files_keep_rows_and_row_groups(tmp_path, monkeypatch, partitions):
    """Of each partition, with a column somebody added, and no data change; what is large already stays."""
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 1000)
    path, by = tmp_path / "t", ("partition",) * bool(partitions)
    create_table(path, MESSAGES, {"topic": "t", "partitions": partitions}, by)
    sizes = (10, 500, 490, 1, 3000, 600, 600, 0)
    for number, size in enumerate(sizes):
        message_at = message(number, payload=b"x" * size, partition=number % partitions if partitions else -1)
        AppendTable(path).append(MESSAGES.rows([message_at]))
    DeltaTable(str(path)).alter.add_columns(DeltaField("mine", "string"))
    large = "y" * 200_000  # does not compress away: its file is larger than what is joined here
    rows = MESSAGES.rows([message(9, payload=random.Random(0).randbytes(200_000), partition=0 if partitions else -1)])
    write_deltalake(str(path), rows.append_column("mine", pa.array([large])), mode="append")
    monkeypatch.setattr(joining, "JOINED_BYTES", 100_000)
    before, version = dataset_of(path).to_table().sort_by("entry_id"), TableLog(path).latest()
    assert optimize(path) == (8, max(partitions, 1)) and optimize(path) == (0, 0)
    assert dataset_of(path).to_table().sort_by("entry_id").equals(before)
    done = [TableLog(path).commit(at) for at in range(version + 1, TableLog(path).latest() + 1)]
    assert [(each.operation, each.added, each.removed) for each in done] == [("OPTIMIZE", (), 0)] * len(done)
    groups = []
    for file in DeltaTable(str(path)).file_uris():
        for number in range((footer := pq.read_metadata(file)).num_row_groups):
            payloads = pq.ParquetFile(file).read_row_group(number, ["payload"])["payload"].to_pylist()
            groups.append(sum(map(len, payloads)) if len(payloads) > 1 else 0)
        assert footer.num_rows in (1, 8 // max(partitions, 1))
    assert max(groups) <= 1000 and len(groups) <= 1 + 5 + partitions


@pytest.mark.parametrize("happens", ["append", "delete"])
def test_joining_goes_behind_what_was_committed_meanwhile(tmp_path, monkeypatch, happens):
    """And leaves files that have left the table; a file of its own that is not to be is taken away."""
    path = tmp_path / "t"
    create_table(path, MESSAGES, {"topic": "t", "partitions": 0})
    for number in range(3):
        AppendTable(path).append(MESSAGES.rows([message(number)]))
    write = joining.write_parts

    def meanwhile(*asked, **options):
        if happens == "append":
            AppendTable(path).append(MESSAGES.rows([message(3)]))
        else:
            DeltaTable(str(path)).delete("entry_id = 1")
        return write(*asked, **options)

    monkeypatch.setattr(joining, "write_parts", meanwhile)
    assert optimize(path) == ((3, 1) if happens == "append" else (0, 0))
    left = dataset_of(path).to_table().sort_by("entry_id")["entry_id"].to_pylist()
    assert left == ([0, 1, 2, 3] if happens == "append" else [0, 2])
    assert len([*path.glob("*.parquet")]) == (5 if happens == "append" else 3)
