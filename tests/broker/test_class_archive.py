"""The archive of Spark's classes: used where it is there, made in one step or not at all. That a JVM starts quicker
with it is measured by hand."""

import subprocess
from pathlib import Path

import pytest

from pulsar_spark.broker.service import class_archive
from pulsar_spark.errors import UnknownError
from pulsar_spark.storage import session


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pulsar_spark"


def ends(monkeypatch, code: int, *, writes: bool, says: str = "") -> None:
    """Let the process that runs the broker end so."""

    def run(command, **options):
        if writes:
            Path(command[-1]).write_bytes(b"classes")
        return subprocess.CompletedProcess(command, code, "", says)

    monkeypatch.setattr(class_archive.subprocess, "run", run)


def test_sessions_use_the_archive_that_is_there(cache, monkeypatch):
    assert session._archive_options(is_made=False) == ""
    ends(monkeypatch, 0, writes=True)
    path = class_archive.archive_classes()
    assert path == session.class_archive() and list(cache.iterdir()) == [path]
    assert session._archive_options(is_made=True).split()[0] == f"-XX:SharedArchiveFile={path}"


@pytest.mark.parametrize(("code", "writes"), [(1, False), (1, True), (0, False)])
def test_one_that_cannot_be_made_is_said_and_the_one_before_stays(cache, monkeypatch, code, writes):
    ends(monkeypatch, 0, writes=True)
    path = class_archive.archive_classes()
    path.write_bytes(b"before")
    ends(monkeypatch, code, writes=writes, says="warning\nno space left\n")
    with pytest.raises(UnknownError, match="no space left"):
        class_archive.archive_classes()
    assert [(each, each.read_bytes()) for each in cache.iterdir()] == [(path, b"before")]


def test_a_broker_without_a_whole_archive_makes_one_when_it_ends(cache):
    path = session.class_archive()
    for _ in range(2):
        assert session._archive_options(is_made=True).split()[0] == f"-XX:ArchiveClassesAtExit={path}"
        path.write_bytes(bytes(8))  # a JVM that was killed while it wrote


def test_a_path_that_java_options_cannot_name_is_not_given(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))
    ends(monkeypatch, 0, writes=True)
    assert class_archive.archive_classes().is_file() and session._archive_options(is_made=True) == ""
