"""The worlds in which blocks of the documentation run: each is an empty folder, and what a page says it needs in it."""

import os
import sys

import pytest

from pulsar_spark.broker.runner import Broker
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
def a_spark_session(an_empty_folder, spark):
    """A Spark session ``spark``, for which paths begin in the folder too: its JVM may have started elsewhere."""
    files = spark._jvm.org.apache.hadoop.fs
    local = files.FileSystem.get(spark._jsc.hadoopConfiguration())
    before = local.getWorkingDirectory()
    local.setWorkingDirectory(files.Path(str(an_empty_folder)))
    yield {"spark": spark}
    local.setWorkingDirectory(before)


@pytest.fixture
def a_spark_session_and_a_broker(an_empty_folder, a_spark_session):
    """A Spark session ``spark``, and a broker on ``pulsar-root``."""
    with Broker(a_spark_session["spark"], an_empty_folder / ROOT, housekeeping=False):
        yield a_spark_session
