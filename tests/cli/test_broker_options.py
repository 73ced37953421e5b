"""What the command and the job tell the broker they start; without a JVM."""

import logging
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from pulsar_spark.broker import runner
from pulsar_spark.broker.service import process
from pulsar_spark.cli import app
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.jobs import broker

OPTION = "--max-unacked-messages-per-broker"
BUCKETS = "--delayed-delivery-max-num-buckets"


@pytest.fixture
def started(monkeypatch, tmp_path) -> Iterator[list[tuple]]:
    """Roots, limits, whether they are for now, most buckets, and whether they keep house, of brokers that started."""
    started, log = [], logging.getLogger("pulsar_spark")
    level = log.level
    monkeypatch.chdir(tmp_path)  # a broker that starts says so in its root

    def run_broker(
        root,
        *,
        on_round=None,
        max_unacked_messages_per_broker=0,
        available_now=False,
        delayed_delivery_max_num_buckets=0,
        housekeeping=False,
    ):
        limits = (max_unacked_messages_per_broker, available_now, delayed_delivery_max_num_buckets, housekeeping)
        started.append((root, *limits))

    for module in (process, broker):
        monkeypatch.setattr(module, "run_broker", run_broker)
    yield started
    log.setLevel(level)


@pytest.mark.parametrize(
    "given, asked",
    [
        ([], (0, False, 20, True)),
        ([OPTION, "70000"], (70_000, False, 20, True)),
        (["--available-now"], (0, True, 20, True)),
        ([BUCKETS, "7"], (0, False, 7, True)),
        (["--housekeeping"], (0, False, 20, True)),
        (["--no-housekeeping"], (0, False, 20, False)),
    ],
)
def test_the_command_and_the_job_take_the_same_options(started, given, asked):
    done = CliRunner().invoke(app, ["broker", "--root", "there", *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    broker.main(["--root", "there", *given])
    assert started == [("there", *asked)] * 2


def test_the_help_says_that_housekeeping_samples_activity():
    found = CliRunner().invoke(app, ["broker", "--help"], env={"COLUMNS": "400"}).output
    assert "sample activity" in found


def test_a_limit_below_nothing_is_refused(started, tmp_path):
    assert CliRunner().invoke(app, ["broker", "--root", "there", OPTION, "-1"]).exit_code == 2
    with pytest.raises(InvalidConfiguration, match="max_unacked_messages_per_broker -1"):
        runner.Broker(None, tmp_path, max_unacked_messages_per_broker=-1)
    assert CliRunner().invoke(app, ["broker", "--root", "there", BUCKETS, "0"]).exit_code == 2
    with pytest.raises(InvalidConfiguration, match="delayed_delivery_max_num_buckets 0"):
        runner.Broker(None, tmp_path, delayed_delivery_max_num_buckets=0)
    assert started == []
