"""Store the classes that a broker's JVM loads, so that the next one on this machine starts faster (JEP 350)."""

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
from pulsar_spark.storage.topics.topics import create_topic

_JVM_SECONDS = 300


def archive_classes() -> Path:
    """Create the archive of this machine and user again; returns its path. :class:`UnknownError` if that fails."""
    target = class_archive()
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        done = subprocess.run([sys.executable, "-m", __name__, str(fresh)], capture_output=True, text=True, check=False)
        if done.returncode or not fresh.is_file():
            reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise UnknownError(f"the archive {str(target)!r} could not be created: {reason}; brokers start without one")
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
    return target


def _run_broker(archive: str) -> None:
    """Run a broker with a topic until its JVM has written *archive*."""
    options = {JAVA_OPTIONS: f"{ROUND_JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive}"}
    spark = spark_session(for_rounds=True, settings=options)
    with tempfile.TemporaryDirectory(prefix="pulsar_spark_classes_") as root:
        create_topic(Layout(root), "t")
        with Broker(spark, root, available_now=True) as broker:
            broker._planner.compile()
            broker.wait()
    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None, "a session has a JVM"
    gateway.proc.stdin.close()
    gateway.proc.wait(_JVM_SECONDS)


if __name__ == "__main__":
    _run_broker(sys.argv[1])
