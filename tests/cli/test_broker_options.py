"""What the command and the job tell the broker they start; without a JVM."""
import logging
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pulsar_spark.broker import runner
from pulsar_spark.cli import app
from pulsar_spark.errors import InvalidConfiguration

JOB = Path(__file__).parents[2] / "jobs" / "broker.py"
OPTION = "--max-unacked-messages-per-broker"


@pytest.fixture
def started(monkeypatch) -> Iterator[list[tuple]]:
    """Roots and limits of the brokers that were started."""
    started, log = [], logging.getLogger("pulsar_spark")
    level = log.level

    def run_broker(root, *, on_round=None, max_unacked_messages_per_broker=0):
        started.append((root, max_unacked_messages_per_broker))

    monkeypatch.setattr(runner, "run_broker", run_broker)
    yield started
    log.setLevel(level)


@pytest.mark.parametrize("given, limit", [([], 0), ([OPTION, "70000"], 70_000)])
def test_the_command_and_the_job_take_the_limit_of_unacknowledged_messages(started, given, limit):
    done = CliRunner().invoke(app, ["broker", "--root", "there", *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    runpy.run_path(str(JOB))["main"](["--root", "there", *given])
    assert started == [("there", limit)] * 2


def test_a_limit_below_nothing_is_refused(started, tmp_path):
    assert CliRunner().invoke(app, ["broker", "--root", "there", OPTION, "-1"]).exit_code == 2
    with pytest.raises(InvalidConfiguration, match="max_unacked_messages_per_broker -1"):
        runner.Broker(None, tmp_path, max_unacked_messages_per_broker=-1)
    assert started == []
