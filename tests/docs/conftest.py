"""The worlds in which blocks of the documentation run: each is an empty folder, and what a page says it needs in it."""

import gc
import os
import shutil
import sys
from pathlib import Path

import pytest

from pulsar_spark.testing.plain_broker import PlainBroker

ROOT = "pulsar-root"
"""The folder that the pages use as their root."""


@pytest.fixture
def an_empty_folder(tmp_path, monkeypatch):
    """A folder of its own, ``pulsar-spark`` on the PATH, and the variable that names the root."""
    tools = tmp_path / "tools"
    tools.mkdir()
    command = tools / "pulsar-spark"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m pulsar_spark.cli "$@"\n')
    command.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("PULSAR_SPARK_ROOT", ROOT)
    return folder


@pytest.fixture
def a_broker(an_empty_folder):
    """A broker on ``pulsar-root``, without a JVM."""
    with PlainBroker(an_empty_folder / ROOT):
        yield {}


@pytest.fixture
def a_spark_session(an_empty_folder, spark, monkeypatch):
    """A Spark session ``spark``, in the folder of its JVM, where Python workers start and relative paths begin."""
    folder = Path(spark._jvm.java.lang.System.getProperty("user.dir"))
    before = {*folder.iterdir()}
    monkeypatch.chdir(folder)
    yield {"spark": spark}
    gc.collect()  # else what a page left open misses its root, and so does the next page, whose root is the same
    for path in {*folder.iterdir()} - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture
def a_spark_session_and_a_broker(a_spark_session):
    """A Spark session ``spark``, and a broker on ``pulsar-root``, whose rounds are not on it."""
    with PlainBroker(ROOT):
        yield a_spark_session
