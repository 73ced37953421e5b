"""Folders of temporary files go with their process, and with no other."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pulsar_spark.frames.deliveries import split_folder
from pulsar_spark.frames.deliveries.split_folder import PREFIX, SplitFolder


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(split_folder, "_looked_in", set())
    return tmp_path


_SPLITTING = """
import sys
from pulsar_spark.frames.deliveries.split_folder import SplitFolder
folder = SplitFolder(["a", "b"])
(folder.path / "a" / "part-0.parquet").write_bytes(b"half a file")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def splitting(place):
    """Another process in the middle of a split, and its folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SPLITTING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"TMPDIR": str(place), "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        text=True,
    )
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.communicate()


def test_what_a_killed_process_left_goes_with_the_next_start(place, splitting):
    process, left = splitting
    process.kill()
    process.wait()
    assert (left / "a" / "part-0.parquet").is_file(), "killed in the middle"
    mine = SplitFolder(["c"])
    assert [*place.iterdir()] == [mine.path]
    mine.remove()
    assert not [*place.iterdir()]


def test_what_another_process_is_writing_stays(place, splitting):
    _, its = splitting
    mine = SplitFolder(["c"])
    assert {*place.iterdir()} == {its, mine.path}
    assert (its / "a" / "part-0.parquet").is_file()
    mine.remove()
    assert [*place.iterdir()] == [its]


def test_what_is_not_known_to_be_left_stays(place):
    """A folder that nobody held, a link to elsewhere, and a file."""
    elsewhere = place / "elsewhere"
    (elsewhere / "a").mkdir(parents=True)
    (place / f"{PREFIX}link").symlink_to(elsewhere)
    (place / f"{PREFIX}empty").mkdir()
    (place / f"{PREFIX}file").touch()
    before = {*place.iterdir()}
    SplitFolder(["c"]).remove()
    assert {*place.iterdir()} == before and (elsewhere / "a").is_dir()


def test_a_name_goes_by_itself(place):
    folder = SplitFolder(["a", "b"])
    folder.remove("a")
    assert {each.name for each in folder.path.iterdir()} == {"b", ".held"}
    folder.remove()
    folder.remove()
    assert not folder.path.exists()
