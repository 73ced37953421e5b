"""A live view that shows another number than the root has, breaks its lines, or leaves the terminal changed, is found
here."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

import pulsar_spark as pulsar
from pulsar_spark.cli.monitor.root_stats import overview_of
from pulsar_spark.cli.monitor.terminal import Terminal
from pulsar_spark.cli.monitor.top import Top, run
from pulsar_spark.errors import NotARoot
from tests.support.screen import Screen
from tests.support.waiting import DEADLINE_SECONDS, eventually, send

KEY_SHARED = {"consumer_type": pulsar.ConsumerType.KeyShared}
UP, DOWN = "\x1b[A", "\x1b[B"


@pytest.fixture
def busy(pulsar_client, pulsar_broker, pulsar_clock):
    """``orders`` with ``billing``, which has a consumer, and with ``mail``; ``quiet`` with ``audit``."""
    consumer = pulsar_client.subscribe("orders", "billing", consumer_name="worker", **KEY_SHARED)
    for topic, subscription in (("orders", "mail"), ("quiet", "audit")):
        pulsar_client.subscribe(topic, subscription).close()
    producer = pulsar_client.create_producer("orders")
    for number in range(8):
        producer.send(b"x" * number, partition_key=f"key {number}")
    producer.send(b"later", deliver_after=timedelta(minutes=5))
    for _ in range(3):
        consumer.acknowledge(consumer.receive(DEADLINE_SECONDS * 1000))
    send(pulsar_client, "quiet", "a")
    pulsar_broker.settle()
    pulsar_clock.advance(seconds=90)
    return pulsar_broker


@pytest.fixture
def top(busy) -> Top:
    found = Top(str(busy.layout.root), overview_of(str(busy.layout.root)))
    found.look()
    return found


def order(top: Top) -> list[str]:
    """The subscriptions, from the first line on."""
    return [line.split()[-1] for line in top.frame(120, 24)[3:6]]


class Ticks:
    """A clock that moves when a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def shown(top: Top, screen: Screen, ticks: Ticks):
    """*top* as it runs on *screen*; yields what it raised."""
    raised: list[Exception] = []

    def work() -> None:
        try:
            with Terminal(screen.descriptor, screen.descriptor) as terminal:
                run(top, terminal, 1.0, ticks)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield raised
    finally:
        if thread.is_alive():
            screen.press("q")
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize("key, expected", [("b", "mail"), ("u", "billing"), ("i", "mail"), ("t", "billing")])
def test_keys_sort(top, key, expected):
    top.press(key, 10)
    assert order(top)[0] == expected
    assert {*order(top)} == {"billing", "mail", "audit"}


def test_a_look_into_one_subscription(top):
    top.press("u", 10)
    top.press("enter", 10)
    inside = "\n".join(top.frame(80, 24))
    for text in ("KeyShared, delivered 8, acknowledged 3", "worker [0-", "key 3", "CONSUMER", "OLDEST"):
        assert text in inside
    assert "xxx" not in inside, "no payload is shown"
    top.press("escape", 10)
    assert order(top)[0] == "billing"


def test_the_chosen_line_stays_with_its_subscription(top):
    top.press("end", 10)
    (marked,) = [line for line in top.frame(80, 24)[3:6] if line.startswith("\x1b[7m")]
    assert marked.split()[-1] == "audit"
    top.press("enter", 10)
    top.press("u", 10)
    assert "audit" in top.frame(80, 24)[3]


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (20, 4), (200, 60), (1, 1)])
@pytest.mark.parametrize("keys", [[], ["enter"]])
def test_frames_fit(top, size, keys):
    for key in keys:
        top.press(key, 10)
    lines = [line.removeprefix("\x1b[7m").removeprefix("\x1b[1m") for line in top.frame(*size)]
    assert len(lines) == size[1] and max(map(len, lines)) <= max(size[0], 70 if size[0] < 80 else 0)


def test_on_a_terminal(top, busy, pulsar_client, pulsar_clock):
    ticks = Ticks()
    with Screen() as screen:
        before = screen.attributes()
        with shown(top, screen, ticks) as raised:
            screen.wait("q quit")
            assert "BACKLOG AGE" in screen.rows()[2] and screen.rows()[3].endswith("orders mail")
            assert screen.has("1m") and screen.has("ROUND TIME") and "?1049" in screen.modes
            screen.press(DOWN + "\r")
            screen.wait("worker")
            screen.press("\x1b")
            screen.wait("b backlog")
            clears, drawn = screen.clears, screen.bytes
            send(pulsar_client, "quiet", *"abcdefghijkl")
            busy.settle()
            pulsar_clock.advance(seconds=5)
            ticks.now += 1
            eventually(lambda: screen.rows()[3].endswith("audit"))
            assert screen.rows()[3].split()[0] == "13"
            assert screen.clears == clears and screen.bytes - drawn < 4000, "only what changed is drawn"
            screen.resize(60, 12)
            eventually(lambda: screen.rows()[11].startswith("b backlog") and not screen.has("ROUND TIME"))
            screen.resize(100, 30)
            screen.wait("ROUND TIME")
            busy.close()
            ticks.now += 1
            screen.wait("no broker serves")
        eventually(lambda: "?1049" not in screen.modes and "?7" in screen.modes)
        assert not raised and screen.attributes() == before, "the terminal is as it was"


def test_a_root_that_goes_ends_it(top, busy, pulsar_client):
    ticks = Ticks()
    pulsar_client.shutdown()
    busy.close()
    with Screen() as screen, shown(top, screen, ticks) as raised:
        screen.wait("q quit")
        shutil.rmtree(busy.layout.root)
        ticks.now += 1
        eventually(lambda: raised, 60)
    assert isinstance(raised[0], NotARoot)


def test_a_fault_that_passes_is_shown(top, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(top._overview, "look", lambda now: (_ for _ in ()).throw(OSError("the disk is slow")))
        top.look()
        assert "OSError: the disk is slow" in top.frame(80, 24)[1]
    top.look()
    assert "serves" in top.frame(80, 24)[1]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_the_terminal_back(busy, number):
    with Screen() as screen:
        before = screen.attributes()
        command = [sys.executable, "-m", "pulsar_spark.cli", "top", "--root", str(busy.layout.root)]
        ends = dict.fromkeys(("stdin", "stdout"), screen.descriptor)
        with subprocess.Popen(command, **ends, stderr=subprocess.PIPE, env=os.environ, text=True) as process:
            screen.wait("q quit")
            process.send_signal(number)
            assert process.wait(DEADLINE_SECONDS) == 128 + number and process.stderr.read() == ""
        eventually(lambda: "?1049" not in screen.modes)
        assert screen.attributes() == before
