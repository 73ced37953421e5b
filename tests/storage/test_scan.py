"""Reading tables: what is read, and that a process may end right after."""
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_spark.storage.scan import dataset_of

ENDINGS = 8
"""Opened through Python, every second process of the script below was aborted."""
PROJECT = Path(__file__).parents[2]
READ_AND_END = "import sys; from pulsar_spark.storage.scan import dataset_of; assert dataset_of(sys.argv[1]).to_table().num_rows == 8000"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "a table of 100 %"
    for number in range(8):
        rows = pa.table({"number": range(1000), "text": [f"{number} {each}" for each in range(1000)], "part": [each % 4 for each in range(1000)]})
        write_deltalake(path, rows, mode="append", partition_by=["part"])
    return path


def test_rows_of_a_version(table):
    wanted = (pc.field("number") < 3) & (pc.field("part") == 2)
    assert dataset_of(table).to_table(filter=wanted).num_rows == 8
    assert dataset_of(DeltaTable(table, version=0)).to_table(columns=["text"], filter=wanted).to_pydict() == {"text": ["0 2"]}


def test_a_process_that_has_just_read_ends_well(table):
    for _ in range(ENDINGS):
        done = subprocess.run([sys.executable, "-c", READ_AND_END, str(table)], cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


def test_nobody_reads_in_another_way():
    readers = [path for folder in ("pulsar_spark", "jobs", "notebooks", "tests") for path in (PROJECT / folder).rglob("*.py")
               if path != Path(__file__) and ".to_pyarrow_" in path.read_text(encoding="utf-8")]
    assert readers == [PROJECT / "pulsar_spark" / "storage" / "scan.py"]
