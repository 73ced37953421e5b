"""Reading tables: what is read, and that a process may end right after."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage import scan
from pulsar_spark.storage.scan import dataset_of

ENDINGS = 8
"""Opened through Python, every second process of the script below was aborted."""
PROJECT = Path(__file__).parents[2]
READ_AND_END = """
import sys
from pulsar_spark.storage.scan import dataset_of
assert dataset_of(sys.argv[1]).to_table().num_rows == 8000
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "a table of 100 %"
    for number in range(8):
        rows = pa.table(
            {
                "number": range(1000),
                "text": [f"{number} {each}" for each in range(1000)],
                "part": [each % 4 for each in range(1000)],
            }
        )
        write_deltalake(path, rows, mode="append", partition_by=["part"])
    return path


def test_rows_of_a_version(table):
    wanted = (pc.field("number") < 3) & (pc.field("part") == 2)
    assert dataset_of(table).to_table(filter=wanted).num_rows == 8
    assert dataset_of(DeltaTable(table, version=0)).to_table(columns=["text"], filter=wanted).to_pydict() == {
        "text": ["0 2"]
    }


def test_a_process_that_has_just_read_ends_well(table):
    for _ in range(ENDINGS):
        done = subprocess.run(
            [sys.executable, "-c", READ_AND_END, str(table)],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


GAP = (
    "Kernel error: Generic delta kernel error: Expected contiguous commit files, but found gap: 5000.json -> 5002.json"
)


@pytest.mark.parametrize(
    "listings, error, is_opened", [(3, GAP, True), (10**6, GAP, False), (1, "Kernel error: no such thing", False)]
)
def test_a_log_listed_while_others_commit_is_listed_again(table, monkeypatch, listings, error, is_opened):
    """What ``deltalake`` said now and then of a table with hundreds of commits a second."""
    calls = []

    def open_badly(path, version=None, **_options):
        calls.append(version)
        if len(calls) <= listings:
            raise DeltaError(error)
        return DeltaTable(path, version=version)

    monkeypatch.setattr(scan, "DeltaTable", open_badly)
    if is_opened:
        assert scan.open_table(table, 2).version() == 2
        assert calls == [2] * (listings + 1)
    else:
        refused, said = (OSError, "more quickly") if error == GAP else (CorruptState, f"{error}.*pulsar-spark repair")
        with pytest.raises(refused, match=said):
            scan.open_table(table)


def test_nobody_opens_or_reads_in_another_way():
    for path in (PROJECT / "pulsar_spark").rglob("*.py"):
        assert path.name == "scan.py" or "DeltaTable(" not in path.read_text(encoding="utf-8"), path
    readers = [
        path
        for folder in ("pulsar_spark", "jobs", "notebooks", "tests")
        for path in (PROJECT / folder).rglob("*.py")
        if path != Path(__file__) and ".to_pyarrow_" in path.read_text(encoding="utf-8")
    ]
    assert readers == [PROJECT / "pulsar_spark" / "storage" / "scan.py"]


def test_nobody_makes_local_frames_in_another_way():
    callers = [
        path for path in (PROJECT / "pulsar_spark").rglob("*.py") if ".createDataFrame(" in path.read_text("utf-8")
    ]
    assert [path.name for path in callers] == ["session.py"]
