"""Keeping the classes that a JVM of a broker loads, so that the next one of this machine need not load and check them.

A start of Spark takes most of its time for some 20,000 classes. Java 17 can write those that a process has loaded to a
file at its end (class data sharing), which later processes map into memory. So a process of its own runs a small
broker on a root of its own, and ends; its file takes its place in one step once that process is gone. A JVM that the
file does not fit, after an upgrade of Java, say, passes over it. On two busy cores a broker serves 21 to 29 s after its
process began instead of 35 to 56 s; the file has 170 MB. Source: JEP 350, Dynamic CDS Archives.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

from pulsar_spark.broker.runner import Broker
from pulsar_spark.errors import UnknownError
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import JAVA_OPTIONS, ROUND_JAVA_OPTIONS, class_archive, spark_session
from pulsar_spark.storage.topics import create_topic

_JVM_SECONDS = 300


def archive_classes() -> Path:
    """Make the archive of this machine and user anew; where it is. :class:`UnknownError` with what the process said
    where none came to be; the one that was there stays then."""
    target = class_archive()
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        done = subprocess.run([sys.executable, "-m", __name__, str(fresh)], capture_output=True, text=True, check=False)
        if done.returncode or not fresh.is_file():
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise UnknownError(f"the archive {str(target)!r} could not be created: {said}; brokers start without one")
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
    return target


def _run_broker(archive: str) -> None:
    """Run a broker that has a topic to look at, and wait for the end of its JVM, which writes *archive* then."""
    options = {JAVA_OPTIONS: f"{ROUND_JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive}"}
    spark = spark_session(for_rounds=True, settings=options)
    with tempfile.TemporaryDirectory(prefix="pulsar_spark_classes_") as root:
        create_topic(Layout(root), "t")
        with Broker(spark, root, available_now=True) as broker:
            broker._planner.compile(with_run_in=False)
            broker.wait()
    gateway = SparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait(_JVM_SECONDS)


if __name__ == "__main__":
    _run_broker(sys.argv[1])
