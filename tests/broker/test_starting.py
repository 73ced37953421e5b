"""A broker that is on its way is seen: by ``broker status``, by clients and in what they raise."""

import json
import logging
import os
import socket
import time

import pytest
from typer.testing import CliRunner

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.cli import app
from pulsar_spark.link import requests
from pulsar_spark.link.broker_watch import BrokerWatch
from pulsar_spark.storage.processes.starting import (
    QUERY,
    STARTS,
    announce_start,
    begin_starting,
    end_starting,
    starting,
)
from pulsar_spark.storage.topics.topics import create_topic, prepare_root
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually


@pytest.fixture
def made(layout):
    prepare_root(layout)
    yield layout.root
    end_starting(layout)


def status(made, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["broker", "status", "--root", str(made), *options])
    return done.exit_code, done.stdout


def test_it_is_seen_from_the_first_moment_until_it_serves(tmp_path, layout):
    announce_start(layout.root)
    eventually(lambda: starting(layout) is not None)
    code, said = status(layout.root)
    assert code == 3 and said.startswith("no broker serves yet: a broker starts (since ")
    assert said.endswith(f"process {os.getpid()} on {socket.gethostname()})\n")
    found = json.loads(status(layout.root, "--json")[1])["starting"]
    assert (found["what"], found["pid"]) == (STARTS, os.getpid())
    with PlainBroker(layout.root) as broker:
        assert starting(layout) is None
        code, said = status(layout.root)
        assert code == 0 and said.startswith(f"{broker.broker_id} serves (process ") and said.count("\n") == 1


def test_one_that_stands_by_does_not_start(made, layout):
    with PlainBroker(made):
        second = PlainBroker(made)
        assert second.start(standby_seconds=0.1) is False
        assert starting(layout) is None
        second.close()


def test_one_whose_query_is_started_again_says_so_while_it_serves(made, layout):
    with PlainBroker(made) as broker:
        broker._starts_query_again(True)
        eventually(lambda: starting(layout) is not None)
        assert starting(layout).what == QUERY
        code, said = status(made)
        assert code == 0 and "serves (process" in said and "a broker starts its query again (since " in said
        broker._starts_query_again(False)
        assert starting(layout) is None


def test_a_sign_whose_process_is_gone_says_nothing(made, layout):
    begin_starting(layout)
    eventually(lambda: starting(layout) is not None)
    end_starting(layout)
    gone = {"what": STARTS, "since_ms": 1, "host": socket.gethostname(), "pid": 2**22 + 1, "until": time.time() + 60}
    beyond_the_calendar = gone | {"pid": os.getpid(), "since_ms": 1 << 60}
    for content in (json.dumps(gone), json.dumps(beyond_the_calendar), "{", "[]", ""):
        (layout.bundle_folder() / "starting.json").write_text(content)
        assert starting(layout) is None
        assert status(made) == (3, "no broker serves\n")


def test_what_waits_for_it_is_not_told_to_start_another(made, layout, caplog):
    create_topic(layout, "t")
    begin_starting(layout)
    eventually(lambda: starting(layout) is not None)
    with pytest.raises(pulsar.Timeout, match="a broker starts .*: try again when it serves"):
        Admin(f"delta:{made}", timeout_seconds=0.1).create_subscription("t", "s")
    clock = [0.0]
    with caplog.at_level(logging.INFO):
        watch = BrokerWatch(layout, logging.getLogger("pulsar_spark.client"), lambda: clock[0])
        watch.look()
        clock[0] = 10.0
        watch.look()
        end_starting(layout)
        clock[0] = 20.0
        watch.look()
    said = [record.getMessage() for record in caplog.records if record.name == "pulsar_spark.client"]
    assert len(said) == 2
    assert "yet: a broker starts (since" in said[0] and "start one with" not in said[0]
    assert "start one with" in said[1]


def test_a_sign_that_cannot_be_read_changes_no_answer(made, layout, monkeypatch):
    def fail(_layout):
        raise OSError(5, "no")

    create_topic(layout, "t")
    monkeypatch.setattr(requests, "starting", fail)
    with pytest.raises(pulsar.Timeout, match="start one with"):
        Admin(f"delta:{made}", timeout_seconds=0.1).create_subscription("t", "s")


def test_a_folder_that_can_be_no_root_is_refused_before_spark_is_started(tmp_path):
    (tmp_path / "other").write_text("x")
    done = CliRunner().invoke(app, ["broker", "--root", str(tmp_path)])
    assert type(done.exception).__name__ == "NotARoot"
