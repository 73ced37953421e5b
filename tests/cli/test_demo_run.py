"""What the demo leaves behind, and what its consumers say while no broker serves yet; without Spark."""

import io
import logging
import re
import threading
from multiprocessing import Pipe
from pathlib import Path

import pytest
from rich.console import Console

from pulsar_spark.demo import consumers, run
from pulsar_spark.demo.account import Account
from pulsar_spark.errors import NotConnected
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.testing.plain_broker import PlainBroker

ROWS = 1_000


def account(*defects: str) -> Account:
    return Account(**dict.fromkeys(Account._fields, 0) | {"subscription": "s", "kind": "Shared", "defects": defects})


@pytest.fixture
def demo(monkeypatch, tmp_path):
    """Runs the demo with *step* in the place of all that needs Spark; what it printed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(run.tempfile, "tempdir", str(tmp_path))

    def demo(step, **options) -> str:
        def play(place, *_):
            (place.work / run.BROKER_LOG).write_text("what the broker said")
            return step()

        monkeypatch.setattr(run, "_run", play)
        printed = io.StringIO()
        try:
            demo.result = run.run_demo(rows=ROWS, console=Console(file=printed, width=200), **options)
        except NotConnected as failure:
            demo.result = failure
        return printed.getvalue()

    return demo


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for work in tmp_path.glob("pulsar_spark_demo_*") for path in work.iterdir())


def test_a_demo_that_succeeds_leaves_nothing(demo, tmp_path):
    assert "kept" not in demo(lambda: [account()]) and demo.result is True
    assert not list(tmp_path.glob("pulsar_spark_demo_*"))


def fail():
    raise NotConnected("the broker ended")


@pytest.mark.parametrize("step", [fail, lambda: [account("1 messages were never received")]])
def test_a_demo_that_fails_keeps_the_brokers_log_and_says_where(demo, tmp_path, step):
    (log,) = re.findall(r"kept: (.*)", demo(step))
    assert Path(log).read_text() == "what the broker said" and left(tmp_path) == [run.BROKER_LOG]
    assert demo.result is not True


def test_a_root_that_is_to_be_kept_is_kept_with_the_log(demo, tmp_path):
    for step in (fail, lambda: [account()]):
        assert len(re.findall("kept: ", demo(step, keep=True))) == 2
    assert left(tmp_path) == [run.BROKER_LOG, run.BROKER_LOG, "root", "root"]


def test_a_root_of_ones_own_is_left_alone(demo, tmp_path):
    demo(fail, root=tmp_path / "mine")
    assert (tmp_path / "mine").is_dir() and left(tmp_path) == [run.BROKER_LOG]


def test_a_consumer_waits_for_the_broker_without_a_word(root, layout, caplog):
    """It starts beside the broker: no client of it says that none serves."""
    create_topic(layout, "t")
    mine, theirs = Pipe()
    assignment = consumers.Assignment(f"delta:{root}", "t", "s", "Shared", "c", root / "notes", 1, 0, False)
    thread = threading.Thread(target=consumers._run, args=(assignment, theirs))
    with caplog.at_level(logging.INFO, "pulsar_spark.client"):
        thread.start()
        assert not mine.poll(0.3) and BundleLease(layout, "").holder() is None
        with PlainBroker(root):
            assert mine.poll(30) and mine.recv() == consumers.READY
            mine.send("stop")
            thread.join(60)
    assert not thread.is_alive()
    assert [record.levelname for record in caplog.records if "no broker serves" in record.getMessage()] == []
