"""What commands and jobs say and end with: types that are not served, one default for where to start, signals."""

import inspect
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import pulsar_spark as pulsar
from pulsar_spark.cli import app, common
from pulsar_spark.frames import consume, reprocess_dead_letters
from pulsar_spark.jobs import consume as consume_job
from pulsar_spark.jobs import reprocess_dead_letters as reprocess_job
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.testing.plain_broker import PlainBroker

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize("given", ["Sole", "", "Key-Shared"])
def test_a_type_that_is_not_served_is_refused_before_a_broker_is_looked_for(tmp_path, given):
    done = CliRunner().invoke(app, ["consume", "t", "-s", "s", "-t", given, "--root", str(tmp_path / "none")])
    assert type(done.exception).__name__ == "InvalidConfiguration"
    assert "one of Exclusive, Failover, Shared, KeyShared" in str(done.exception) and repr(given) in str(done.exception)
    assert not (tmp_path / "none").exists()


def test_the_help_offers_the_types_that_are_served():
    said = CliRunner().invoke(app, ["consume", "--help"], env={"COLUMNS": "200"}).output
    assert "Exclusive, Failover, Shared, KeyShared." in said


@pytest.mark.parametrize("command", ["consume", "read"])
def test_the_help_says_how_a_command_without_end_ends(command):
    assert "ith -n 0 " in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output


def test_function_and_job_start_a_new_subscription_at_the_same_place():
    given = consume_job.parse_arguments(["--root", "r", "--topic", "t", "--subscription", "s", "--target", "x"])
    assert given.initial_position == inspect.signature(consume).parameters["initial_position"].default == "Earliest"


def test_function_command_and_job_send_letters_back_to_the_subscription():
    given = reprocess_job.parse_arguments(["--root", "r", "--topic", "t", "--job-id", "j"])
    from pulsar_spark.cli.letters.dead_letters import reprocess

    defaults = [inspect.signature(each).parameters["to"].default for each in (reprocess_dead_letters, reprocess)]
    assert [given.to, *defaults] == ["subscription"] * 3


@pytest.fixture
def broker(tmp_path):
    with PlainBroker(tmp_path / "root") as broker:
        yield broker


def start(broker: PlainBroker, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "pulsar_spark.cli", *arguments, "--root", str(broker.layout.root)],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_key_shared_consumer_says_its_name_ranges_and_order(broker):
    options = ["-t", "key_shared", "--consumer-name", "me", "--sticky-ranges", "0-9,20-65535"]
    asked = ["consume", "t", "-s", "s", "--timeout", "0", "--root", str(broker.layout.root), *options]
    done = CliRunner().invoke(app, [*asked, "--allow-out-of-order-delivery", "--create"])
    assert done.exception is None
    (request,) = broker.asked("subscribe")
    assert (
        request.properties.items()
        >= {
            "subscription_type": "KeyShared",
            "consumer_name": "me",
            "key_shared_mode": "STICKY",
            "hash_ranges": "0-9,20-65535",
            "allow_out_of_order_delivery": "true",
        }.items()
    )


@pytest.mark.parametrize(
    "options, words",
    [
        (["-t", "KeyShared", "--sticky-ranges", "0-65536"], "must be [0, 65535]"),
        (["-t", "KeyShared", "--sticky-ranges", ""], "must not be empty"),
        (["-t", "KeyShared", "--sticky-ranges", "0-9,5-6"], "with overlap"),
        (["-t", "KeyShared", "--sticky-ranges", "a"], "'a' is not two whole numbers"),
        (["-t", "Shared", "--sticky-ranges", "0-9"], "go with --subscription-type KeyShared"),
        (["--allow-out-of-order-delivery"], "go with --subscription-type KeyShared"),
    ],
)
def test_options_of_key_shared_are_refused_before_a_broker_is_looked_for(tmp_path, options, words):
    done = CliRunner().invoke(app, ["consume", "t", "-s", "s", "--root", str(tmp_path / "none"), *options])
    assert type(done.exception).__name__ == "InvalidConfiguration" and words in str(done.exception)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("count", ["0", "5"])
def test_a_consumer_that_is_told_to_end_closes_and_says_so(broker, number, count):
    """To the process group, as a service manager or a terminal does it."""
    client = pulsar.Client(f"delta:{broker.layout.root}")
    client.create_producer("t").send(b"x")
    process = start(broker, "consume", "t", "-s", "s", "-n", count, "--position", "earliest")
    process.stdout.readline()
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=600)
    assert process.returncode == (0 if count == "0" else 128 + number)
    assert said == "1 messages, 1 bytes of payload\n"
    assert len(broker.asked("close")) >= 1, "the subscription is free for the next one"
    client.close()


def test_a_job_that_is_interrupted_leaves_no_traceback(layout: Layout):
    """``pulsar_spark.jobs.consume`` before its Spark is there: see test_jobs for later."""
    code = (
        "import os, signal, time\nfrom pulsar_spark.cli.common import errors_as_one_line\n"
        "with errors_as_one_line():\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(10)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_long_work_is_shown_on_a_terminal_and_nowhere_else(monkeypatch, is_terminal):
    written = io.StringIO()
    monkeypatch.setattr(common, "progress_console", Console(file=written, force_terminal=is_terminal))
    assert common.shows_work("joining files")(lambda: "done")() == "done"
    assert ("joining files" in written.getvalue(), written.getvalue() == "") == (is_terminal, not is_terminal)


def test_skip_says_how_many_there_were(monkeypatch):
    from pulsar_spark.admin import Admin

    for told, said in ((0, "skipped 0"), (3, "skipped 3")):
        monkeypatch.setattr(Admin, "skip_messages", lambda self, topic, subscription, messages, told=told: told)
        done = CliRunner().invoke(
            app, ["subscriptions", "skip", "t", "-s", "s", "-n", "5", "--root", "there"], catch_exceptions=False
        )
        assert done.stdout == said + "\n"


def test_a_consumer_that_waits_no_longer_than_so_ends_then_without_a_broker(layout):
    create_topic(layout, "t")
    began = time.monotonic()
    done = CliRunner().invoke(app, ["consume", "t", "-s", "s", "--timeout", "0.5", "--root", str(layout.root)])
    assert time.monotonic() - began < 25, "by itself it would wait for half a minute"
    assert type(done.exception).__name__ == "Timeout" and "within 0.5 s: start one" in str(done.exception)
