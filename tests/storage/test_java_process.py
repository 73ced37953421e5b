"""What Spark's JVM prints while it starts is kept, and shown where the start fails."""

import subprocess
from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from pulsar_spark.errors import SparkNotStarted
from pulsar_spark.storage.spark import java_process
from pulsar_spark.storage.spark.java_process import quiet_start
from tests.support.waiting import eventually


@pytest.fixture
def started(monkeypatch) -> list[subprocess.Popen]:
    """Processes in the place of JVMs, each of which says that it starts and then what it reads."""
    found = []

    def launch(conf, popen_kwargs):
        script = "echo resolving jars; while read line; do echo $line; done"
        found.append(subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, text=True, **popen_kwargs))
        return SimpleNamespace(jvm=None)

    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(java_process, "launch_gateway", launch)
    yield found
    for process in found:
        process.communicate(timeout=300)


def say(process: subprocess.Popen, line: str) -> None:
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def test_a_start_that_goes_well_is_quiet_and_what_follows_is_shown(started, capsys, monkeypatch):
    shown, read = "", []

    class Chatter(java_process._Chatter):
        def __init__(self):
            super().__init__()
            read.append(self)

    monkeypatch.setattr(java_process, "_Chatter", Chatter)

    def printed(line: str) -> bool:
        nonlocal shown
        shown += capsys.readouterr().err
        return line in shown

    with quiet_start({"spark.master": "local"}):
        say(started[0], "loading")
        eventually(lambda: list(read[0]._lines) == ["resolving jars\n", "loading\n"])
    say(started[0], "out of memory")
    assert eventually(lambda: printed("out of memory\n"))
    assert shown == "out of memory\n"
    with quiet_start({}):  # there is one
        assert len(started) == 1


def test_what_a_start_that_fails_printed_is_shown(started, capsys, monkeypatch):
    def fail(conf, popen_kwargs):
        subprocess.run(["sh", "-c", "echo unresolved dependency"], check=True, **popen_kwargs)
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(java_process, "launch_gateway", fail)
    with pytest.raises(SparkNotStarted, match="ended during its start"), quiet_start({}):
        pass
    shown = ""

    def printed() -> bool:
        nonlocal shown
        shown += capsys.readouterr().err
        return "unresolved dependency\n" in shown

    assert eventually(printed)
