"""Reading tables: what is read, and that a process may end right after."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.delta import scan
from pulsar_spark.storage.delta.actions import parse_commit
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.entries.topic_files import live_files, trimmed_ledgers
from pulsar_spark.storage.repair.condition import check_features

ENDINGS = 8
"""Opened through Python, every second process of the script below was aborted."""
PROJECT = Path(__file__).parents[2]
READ_AND_END = """
import sys
from pulsar_spark.storage.delta.scan import dataset_of
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
            timeout=300,
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
        refused, said = (OSError, "commit faster") if error == GAP else (CorruptState, f"{error}.*pulsar-spark repair")
        with pytest.raises(refused, match=said):
            scan.open_table(table)


def test_a_disk_that_fails_for_now_makes_no_table_corrupt(table, monkeypatch):
    """It passes: nobody is to delete or to restore anything because of it."""
    make_checkpoint(table)
    TableLog(table).file(0).unlink()
    (table / "_compacted").symlink_to(table)
    shutil.copy(TableLog(table).file(1), TableLog(table).file(0))

    def open_badly(*_place, **_options):
        raise DeltaError("Kernel error: Input/output error (os error 5)")

    monkeypatch.setattr(scan, "DeltaTable", open_badly)
    asks = parse_commit(
        1, b'{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"]}}', table
    )
    for read in (
        live_files,
        CompactedView,
        lambda path: trimmed_ledgers(path, [-1]),
        lambda path: check_features(path, asks),
    ):
        with pytest.raises(DeltaError, match="Input/output"):
            read(table)
    TableLog(table).file(0).unlink()
    with pytest.raises(DeltaError, match="Input/output"):
        read_definition(table)


@pytest.mark.parametrize("error", [pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError])
def test_a_data_file_that_arrow_cannot_read_is_corrupt(table, error):
    with pytest.raises(CorruptState, match="a data file cannot be read: no such thing.*pulsar-spark doctor"):
        with scan.reading(table):
            raise error("no such thing")


def test_nobody_opens_or_reads_in_another_way():
    for path in (PROJECT / "pulsar_spark").rglob("*.py"):
        assert path.name == "scan.py" or "DeltaTable(" not in path.read_text(encoding="utf-8"), path
    readers = [
        path
        for folder in ("pulsar_spark", "jobs", "notebooks", "tests")
        for path in (PROJECT / folder).rglob("*.py")
        if path != Path(__file__) and ".to_pyarrow_" in path.read_text(encoding="utf-8")
    ]
    assert readers == [PROJECT / "pulsar_spark" / "storage" / "delta" / "scan.py"]


def test_nobody_makes_local_frames_in_another_way():
    callers = [path for path in (PROJECT / "pulsar_spark").rglob("*.py") if "createDataFrame" in called_in(path)]
    assert [path.name for path in callers] == ["session.py"]


def called_in(path: Path) -> set[str]:
    """The names of the methods that a module calls."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
    return {function.attr for function in calls if isinstance(function, ast.Attribute)}
