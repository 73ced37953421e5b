"""A use of the data source that works in a session of its own and not through Spark Connect is found here."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.storage import session
from pulsar_spark.storage.spark import java_process
from pulsar_spark.storage.spark.session_jars import jar_settings
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually

SECONDS = 600
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The URL of a Connect server that finds this checkout, and whose JVM works in *folder*."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        **session._SETTINGS,
        **jar_settings({}),
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
    }
    settings |= {"spark.connect.grpc.binding.port": str(port), "spark.driver.memory": "1g"}
    (folder / "conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(java_process._SOURCES)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [home / "bin" / "spark-submit", "--properties-file", "conf", "--class", SERVER, "spark-internal"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def is_there() -> bool:
        assert server.poll() is None, (folder / "log").read_text()
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        eventually(is_there, SECONDS)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.mark.java
@pytest.mark.long
def test_what_works_through_connect(tmp_path):
    pytest.importorskip("grpc", reason="pip install 'pyspark[connect]'")
    with PlainBroker(tmp_path / "root") as broker, connect_server(tmp_path) as url:
        program = [sys.executable, "-m", "tests.frames.source.connect_program", url, tmp_path / "root", tmp_path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ran = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=SECONDS)
        assert ran.returncode == 0, ran.stderr
        found = json.loads(ran.stdout.splitlines()[-1])
        refused = {name: found.pop(name) for name in ("wrong_option", "no_such_topic", "wrong_option_of_a_stream")}
        texts = ["0", "1", "2"]
        assert found == {
            "write": None,
            "read": 3,
            "read_two_columns": [[2, "k"]],
            "sql": [["k", 3]],
            "stream_to_delta": texts,
            "subscription_to_delta": [texts, True],
            "subscription_that_runs": texts,
            "stream_to_a_topic": 3,
            "for_each_batch": texts,
        }
        assert "option 'topicc' is unknown; did you mean 'topic'" in refused["wrong_option"]
        assert "topic 'persistent://public/default/nowhere' does not exist" in refused["no_such_topic"]
        assert "'endingPosition' does not belong to a stream" in refused["wrong_option_of_a_stream"]
        subscriptions = Admin(f"delta:{broker.layout.root}").stats("t")["subscriptions"]
        assert [subscriptions[name]["msgBacklog"] for name in ("s", "each")] == [0, 0]
