"""What the command and the job tell the broker they start; without a JVM."""

import logging
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pulsar_spark.broker import process, runner
from pulsar_spark.cli import app
from pulsar_spark.errors import InvalidConfiguration

JOB = Path(__file__).parents[2] / "jobs" / "broker.py"
OPTION = "--max-unacked-messages-per-broker"


@pytest.fixture
def started(monkeypatch) -> Iterator[list[tuple]]:
    """Roots, limits and whether they are for now, of the brokers that were started."""
    started, log = [], logging.getLogger("pulsar_spark")
    level = log.level

    def run_broker(root, *, on_round=None, max_unacked_messages_per_broker=0, available_now=False):
        started.append((root, max_unacked_messages_per_broker, available_now))

    monkeypatch.setattr(process, "run_broker", run_broker)
    yield started
    log.setLevel(level)


@pytest.mark.parametrize(
    "given, asked", [([], (0, False)), ([OPTION, "70000"], (70_000, False)), (["--available-now"], (0, True))]
)
def test_the_command_and_the_job_take_the_same_options(started, given, asked):
    done = CliRunner().invoke(app, ["broker", "--root", "there", *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    runpy.run_path(str(JOB))["main"](["--root", "there", *given])
    assert started == [("there", *asked)] * 2


def test_a_limit_below_nothing_is_refused(started, tmp_path):
    assert CliRunner().invoke(app, ["broker", "--root", "there", OPTION, "-1"]).exit_code == 2
    with pytest.raises(InvalidConfiguration, match="max_unacked_messages_per_broker -1"):
        runner.Broker(None, tmp_path, max_unacked_messages_per_broker=-1)
    assert started == []
