"""``set-aside`` and what else the broker answers, on a root that real rounds serve (with the plain planner)."""

import contextlib
import json
import threading

import pytest
from typer.testing import CliRunner

from pulsar_spark.broker.requests.acknowledgements import Acknowledgements
from pulsar_spark.cli import app
from tests.broker.hostile import ILL, SICK, HostileRoot


def run(*arguments: str, root) -> object:
    return CliRunner().invoke(app, arguments, env={"PULSAR_SPARK_ROOT": str(root)})


@contextlib.contextmanager
def served(hostile: HostileRoot):
    """Rounds in a thread, until the end of the block."""
    stop = threading.Event()

    def serve():
        while not stop.wait(0.01):
            hostile.serve(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def hostile(tmp_path) -> HostileRoot:
    return HostileRoot(tmp_path / "root")


def test_list_retry_and_drop(hostile, monkeypatch):
    root, ack, is_broken = hostile.layout.root, Acknowledgements.ack, threading.Event()

    def failing(self, row):
        if is_broken.is_set() and row.topic == SICK:
            raise LookupError("nobody knows why")
        ack(self, row)

    monkeypatch.setattr(Acknowledgements, "ack", failing)
    is_broken.set()
    first, second = (hostile.write(ILL.ack(position)) for position in (0, 1))
    with served(hostile):
        assert run("set-aside", "retry", f"request-{first}-0", root=root).exit_code == 1
        listed = json.loads(run("set-aside", "list", "--json", root=root).stdout)
        assert sorted((entry["id"], entry["status"], entry["error"], entry["text"]) for entry in listed) == sorted(
            (f"request-{version}-0", "request", "LookupError", "nobody knows why") for version in (first, second)
        )
        assert "nobody knows why" in run("set-aside", "list", root=root).stdout
        is_broken.clear()
        assert run("set-aside", "retry", f"request-{first}-0", root=root).stdout == "tried 1 again\n"
        assert run("set-aside", "drop", "--all", root=root).stdout == "dropped 1\n"
        assert json.loads(run("set-aside", "list", "--json", root=root).stdout) == []
        codes = [run("set-aside", "drop", *wrong, root=root).exit_code for wrong in ((), ("x", "--all"), ("x",))]
        assert codes == [1, 1, 1]
    assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 0
    hostile.holds()


def test_skip_says_how_many_there_were(hostile):
    with served(hostile):
        outputs = [
            run("subscriptions", "skip", SICK, "-s", "ill", "-n", "3", root=hostile.layout.root).stdout
            for _ in range(3)
        ]
    assert outputs == ["skipped 3\n", "skipped 1\n", "skipped 0\n"]
    hostile.holds()


def test_a_policy_that_is_no_number_it_takes_is_refused_and_the_root_lives(hostile):
    done = run("policies", "set", SICK, "message_ttl_seconds", "99999999999", root=hostile.layout.root)
    assert done.exit_code == 1
    hostile.holds()
