"""A broker, a producer and a consumer as commands in processes of their own, in the order a user would try them, and
what is asked of a running broker."""

import json
import signal
import subprocess
import sys

import pytest

from tests.support.commands import say

pytestmark = pytest.mark.java

SECRET = "the payload nobody prints"


class Shell:
    """Runs commands on one root."""

    def __init__(self, root):
        self.root = str(root)

    def start(self, *arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "pulsar_spark.cli", *arguments, "--root", self.root],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments, code=0, stdin=None):
        done = subprocess.run(
            [sys.executable, "-m", "pulsar_spark.cli", *arguments, "--root", self.root],
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    def say(self, *arguments):
        """Run a command in this process, which is the sooner; what it printed."""
        return say(self.root, *arguments)

    def json(self, *arguments):
        return [json.loads(line) for line in self.say(*arguments, "--json").splitlines()]


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("cli") / "root")
    broker = shell.start("broker", "--verbose")
    shell.run("topics", "create", "orders", "-p", "2")
    yield shell
    broker.send_signal(signal.SIGTERM)
    _, log = broker.communicate(timeout=90)
    assert broker.returncode == 0, log
    assert "stopped" in log
    assert "round of" in log
    assert SECRET not in log


def test_the_first_request_waits_for_the_broker_to_come_up(shell):
    shell.run("subscriptions", "create", "orders", "-s", "billing", "--position", "earliest", "--timeout", "600")
    assert shell.json("subscriptions", "list", "orders") == [["billing"]]


def test_what_is_produced_is_consumed_and_no_payload_is_printed(shell, tmp_path):
    [sent] = shell.json("produce", "orders", SECRET, "-n", "3", "-k", "k1", "-p", "colour=red")
    assert sent["produced"] == 3
    lines = shell.run("produce", "orders", "--key-separator", ":", stdin="k2:first\nk3:second\n")
    assert "2 messages published to orders" in lines.stdout
    payloads = tmp_path / "payloads.txt"
    received = shell.run(
        "consume", "orders", "-s", "billing", "-n", "5", "--timeout", "60", "--json", "--output", str(payloads)
    )
    assert SECRET not in received.stdout + received.stderr
    messages = [json.loads(line) for line in received.stdout.splitlines()]
    assert sorted((message["key"], message["size"], message["properties"].get("colour")) for message in messages) == [
        ("k1", len(SECRET), "red")
    ] * 3 + [("k2", 5, None), ("k3", 6, None)]
    assert sorted(payloads.read_text().splitlines()) == ["first", "second"] + [SECRET] * 3
    assert f"5 messages, {3 * len(SECRET) + 11} bytes" in received.stderr


def test_a_cursor_is_moved_skipped_cleared_and_deleted(shell):
    first = "orders-partition-0"
    for command in (("seek", "orders", "--to", "earliest"), ("clear-backlog", "orders")):
        shell.say("subscriptions", *command, "-s", "billing")
    [stats] = shell.json("stats", "orders")
    assert (stats["msgInCounter"], stats["subscriptions"]["billing"]["msgBacklog"]) == (5, 0)
    shell.say("subscriptions", "seek", "orders", "-s", "billing", "--to", "earliest")
    [stats] = shell.json("stats", first)
    backlog = stats["subscriptions"]["billing"]["msgBacklog"]
    shell.say("subscriptions", "skip", first, "-s", "billing", "-n", "1")
    [stats] = shell.json("stats", first)
    assert stats["subscriptions"]["billing"]["msgBacklog"] == max(backlog - 1, 0)
    shell.say("subscriptions", "delete", "orders", "-s", "billing")
    assert shell.json("subscriptions", "list", "orders") == [[]]


def test_policies_are_set_shown_and_removed(shell):
    name = "max_unacked_messages_per_consumer"
    shell.say("policies", "set", "public/default", name, "6")
    assert shell.json("policies", "get", "public/default") == [{name: "6"}]
    shell.say("policies", "remove", "public/default", name)
    assert shell.json("policies", "get", "public/default") == [{}]


def test_a_refusal_of_the_broker_is_one_line(shell):
    refused = shell.run("subscriptions", "clear-backlog", "orders", "-s", "nobody", code=1)
    assert refused.stderr.startswith("SubscriptionNotFound: ")
    assert "Traceback" not in refused.stderr
