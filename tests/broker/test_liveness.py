"""A client's process that ended without a word: on the broker's machine it is seen at once, elsewhere its lease tells,
and a refusal names it."""

import fcntl
import json
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import pulsar_spark as pulsar
from pulsar_spark.broker.runner import Broker
from pulsar_spark.broker.service.liveness import LOOK_SECONDS, MOST_LOOKS, REMEMBERED_SECONDS, TIDY_SECONDS, Liveness
from pulsar_spark.link.channel import Channel
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.held_file import machine
from pulsar_spark.storage.processes.presence import FOREIGN_SECONDS, Presence, presence_folder
from tests.support.processes import Program, broker_process, run
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine
from tests.support.waiting import eventually

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
HOLD = """
client = pulsar.Client(url)
consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType[sys.argv[2] if len(sys.argv) > 2 else "{type}"],
                            initial_position=pulsar.InitialPosition.Earliest, consumer_name="first")
message = consumer.receive(60_000)
{more}
os.write(1, b"holds\\n")
time.sleep(100)
"""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def broker(root):
    with broker_process(root) as process:
        yield process


@pytest.fixture
def client(root):
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=20)
    yield client
    client.shutdown()


def subscribe_soon(client, **options):
    """Subscribe within a few seconds, as a service manager that starts a program again."""
    deadline = time.monotonic() + 8
    while True:
        try:
            return client.subscribe("t", "s", consumer_name="second", **options)
        except pulsar.ConsumerBusy:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
@pytest.mark.parametrize(
    "more",
    ["", "os.fork() or (os.write(1, b'copy\\n'), time.sleep(20), os._exit(0))"],
    ids=["alone", "with a copy that lives on"],
)
def test_an_exclusive_consumer_that_was_killed_does_not_block_its_restart(root, broker, client, end, more):
    client.create_producer("t").send(b"x")
    with Program(HOLD.format(type="Exclusive", more=more), f"delta:{root}") as first:
        first.say("holds")
        with pytest.raises(
            pulsar.ConsumerBusy,
            match=r"consumer 'first' of client '[0-9a-f]{32}', last heard of at 2.*T.*, whose lease ends at 2.*T",
        ):
            client.subscribe("t", "s")
        first.process.send_signal(end)
        assert first.process.wait() == -end
        consumer = subscribe_soon(client)
        assert consumer.receive(60_000).data() == b"x"
        if more:
            os.killpg(first.process.pid, signal.SIGKILL)


def test_what_a_killed_consumer_held_on_shared_comes_to_the_others(root, broker, client):
    client.create_producer("t").send(b"x")
    with Program(HOLD.format(type="Shared", more=""), f"delta:{root}") as first:
        first.say("holds")
        other = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
        with pytest.raises(pulsar.Timeout):
            other.receive(500)
        first.process.kill()
        message = other.receive(60_000)
        assert (message.data(), message.redelivery_count()) == (b"x", 0)
    eventually(lambda: os.listdir(presence_folder(Layout(root))) == [client._client_id])


@pytest.mark.parametrize("end", ["client.close()", "sys.exit()", "os._exit(1)", "os.kill(os.getpid(), signal.SIGABRT)"])
def test_no_file_of_a_client_is_left(root, broker, end):
    code, _, _ = run(f"client = pulsar.Client(url)\nconsumer = client.subscribe('t', 's')\n{end}", f"delta:{root}")
    assert code == {"os._exit(1)": 1, "os.kill(os.getpid(), signal.SIGABRT)": -6}.get(end, 0)
    eventually(lambda: os.listdir(presence_folder(Layout(root))) == [])


def test_a_client_of_another_machine_is_left_to_its_lease(root, broker, client):
    client.create_producer("t").send(b"x")
    holder = '{"host": "elsewhere", "boot": "1", "pid": 1}'
    elsewhere = f"\nfrom pathlib import Path\nPath(client._channel._first._presence.path).write_text({holder!r})"
    with Program(HOLD.format(type="Exclusive", more=elsewhere), f"delta:{root}") as first:
        first.say("holds")
        time.sleep(0.5)
        first.process.kill()
        first.process.wait()
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            with pytest.raises(pulsar.ConsumerBusy, match="consumer 'first'"):
                client.subscribe("t", "s")


# The rules, without processes.


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def leave(layout: Layout, client_id: str, **said) -> Path:
    """The file of a client whose process is gone."""
    path = presence_folder(layout) / client_id
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**machine(), "pid": 1, **said}))
    return path


@pytest.fixture
def layout(tmp_path) -> Layout:
    layout = Layout(tmp_path / "other")
    layout.bundle_folder().mkdir(parents=True)
    return layout


def test_a_thousand_clients_are_looked_at_within_a_second_and_no_faster(layout, monkeypatch):
    clock, looked = Clock(), []
    liveness = Liveness(layout, clock)
    monkeypatch.setattr(
        "pulsar_spark.broker.service.liveness.is_gone",
        lambda layout, client_id: looked.append(client_id) or client_id == "client999",
    )
    monkeypatch.setattr("pulsar_spark.broker.service.liveness.is_watched", lambda layout, client_id: True)
    connected = [f"client{number}" for number in range(1000)]
    gone_at = None
    for look in range(110):
        clock.now = look / 100
        if liveness.gone(connected) and gone_at is None:
            gone_at = clock.now
    assert gone_at is not None and gone_at < 1.1
    assert 1000 <= len(looked) <= 1100 and round(MOST_LOOKS / LOOK_SECONDS) == 1000


def test_what_a_look_costs(layout):
    presences = [Presence(layout, f"client{number}") for number in range(MOST_LOOKS)]
    liveness = Liveness(layout, Clock())
    started = time.process_time()
    assert liveness.gone([f"client{number}" for number in range(MOST_LOOKS)]) == []
    assert time.process_time() - started < LOOK_SECONDS / 2
    for presence in presences:
        presence.end()


def test_who_went_stays_gone_though_its_requests_are_read_later(layout):
    clock = Clock()
    liveness = Liveness(layout, clock)
    leave(layout, "client")
    assert liveness.gone(["client"]) == ["client"]
    assert liveness.gone([]) == []
    assert os.listdir(presence_folder(layout)) == []
    assert liveness.gone(["client"]) == ["client"]
    clock.now = REMEMBERED_SECONDS
    assert liveness.gone(["client"]) == [], "a client that was wrongly taken for gone is left to its lease"


@pytest.mark.parametrize(
    "said", [{"host": "elsewhere"}, {"boot": "before"}, {"pid": os.getpid()}, {"pid": os.getpid(), "host": None}]
)
def test_files_that_say_nothing_for_certain_are_left_until_they_are_old(layout, said):
    path, clock = leave(layout, "client", **said), Clock()
    liveness = Liveness(layout, clock)
    assert liveness.gone(["client"]) == []
    os.utime(path, (0, time.time() - FOREIGN_SECONDS - 1))
    clock.now = TIDY_SECONDS
    assert liveness.gone([]) == []
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"host": 1}', b"5"])
def test_damaged_files_say_nothing(layout, content):
    leave(layout, "client").write_bytes(content)
    assert Liveness(layout, Clock()).gone(["client"]) == []


@pytest.mark.parametrize("client_id", ["../victim", "..", ".", "", "a/b", "x" * 300, "a\0b", "/etc/passwd", None])
def test_a_client_id_is_no_path(layout, client_id):
    victim = layout.bundle_folder() / "victim"
    victim.write_text(json.dumps({**machine(), "pid": 1}))
    presence_folder(layout).mkdir()
    assert Liveness(layout, Clock()).gone([client_id]) == []
    assert victim.exists()


def test_files_left_by_clients_that_no_subscription_knows_are_removed(layout):
    leave(layout, "killed")
    alive = Presence(layout, "alive")
    assert Liveness(layout, Clock()).gone([]) == []
    assert os.listdir(presence_folder(layout)) == ["alive"]
    alive.end()
    alive.end()
    assert os.listdir(presence_folder(layout)) == []


def test_where_every_lock_is_granted_there_is_no_file(layout, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda file, how: None)
    presence = Presence(layout, "client")
    assert os.listdir(presence_folder(layout)) == []
    presence.end()


def test_every_line_to_the_broker_has_a_file_as_long_as_it_lives(root):
    client = pulsar.Client(f"delta:{root}")
    channel = Channel(client._layout, "dataframes")
    assert os.listdir(presence_folder(client._layout)) == ["dataframes"]
    channel.stop(10)
    assert os.listdir(presence_folder(client._layout)) == []
    client.close()


def test_an_idle_broker_has_news_when_a_client_went(tmp_path):
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.round([ON.subscribe("A", "Exclusive", client="client")], 0)
    idle = Broker(None, engine.layout.root, now=lambda: engine.rounds.bundle.now.wall)._batches
    idle.rounds = engine.rounds
    engine.rounds.bundle.has_new_folders = lambda: False
    engine.rounds.bundle.liveness = Liveness(engine.layout, Clock())
    assert not idle.look()
    engine.rounds.bundle.liveness = Liveness(engine.layout, Clock())
    leave(engine.layout, "client")
    assert idle.look()
    engine.round([], 1)
    assert engine.state(TOPIC, -1, "s")["consumers"] == {}
    assert not idle.look()


def test_a_refusal_looks_at_the_holder_first(tmp_path):
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.round([ON.subscribe("A", "Exclusive", client="client"), ON.flow("A", 1)], 0)
    engine.publish(TOPIC, -1, [1])
    engine.round([], 1)
    leave(engine.layout, "client")
    engine.rounds.bundle.liveness._next_look = float("inf")
    round_ = engine.round([ON.subscribe("B", "Shared"), ON.flow("B", 1)], 2)
    assert [(reply.consumer_id, reply.error) for reply in round_["replies"]] == [("B", None)]
    assert [(delivery.consumer_id, delivery.position) for delivery in round_["deliveries"]] == [("B", 0)]


def test_a_refusal_says_when_the_holder_was_heard_of_and_until_when_it_is_waited_for(tmp_path):
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.round([ON.subscribe("A", "Exclusive", client="host-1", lease_ms=45_000)], 1000)
    replies = engine.round([ON.subscribe("B", "Exclusive")], 7000)["replies"]

    def shown(ms):
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat()

    text = next(reply.text for reply in replies if reply.error == "ConsumerBusy")
    assert text.endswith(
        f"(held by consumer 'A' of client 'host-1', last heard of at {shown(1000)}, whose lease ends at "
        f"{shown(46_000)})"
    )


def test_a_broker_that_dies_before_it_has_let_a_client_go_leaves_that_to_the_next(layout):
    leave(layout, "client")
    assert Liveness(layout).gone(["client"]) == ["client"]
    following = Liveness(layout)
    assert following.gone(["client"]) == ["client"]
    assert following.gone([]) == [] and os.listdir(presence_folder(layout)) == []


# Signs of life, which are judged by the broker's own clock.


def connected(engine) -> list[str]:
    return [consumer_id for cursor in engine.rounds.bundle.cursors.values() for consumer_id in cursor.consumers]


def signs_of_a_client(tmp_path, client_id: str = "client") -> tuple[SparkEngine, Path]:
    """A consumer of a client of another machine, of which the lease alone tells, and that client's file."""
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.round([ON.subscribe("A", "Exclusive", client=client_id, lease_ms=30_000)], 0)
    path = leave(engine.layout, client_id, host="elsewhere")
    engine.rounds.bundle.liveness = Liveness(engine.layout, Clock())
    engine.round([], 1)
    return engine, path


@pytest.mark.parametrize("instant", [0, 2**31])
def test_a_sign_of_life_renews_a_lease_from_when_it_is_seen_whatever_time_it_bears(tmp_path, instant):
    engine, path = signs_of_a_client(tmp_path)
    os.utime(path, (instant, instant))
    engine.rounds.bundle.liveness._next_look = float("-inf")
    before = engine.rounds.bundle.version
    engine.run([], 20_000)
    engine.run([], 49_000)
    assert connected(engine) == ["A"] and engine.rounds.bundle.version == before
    engine.run([], 50_001)
    assert connected(engine) == []


def test_a_lease_that_ends_is_looked_at_once_more_and_a_file_nobody_touches_tells_nothing(tmp_path):
    engine, path = signs_of_a_client(tmp_path)
    engine.rounds.bundle.liveness._next_look = float("inf")
    os.utime(path, (5, 5))
    engine.run([], 31_000)
    assert connected(engine) == ["A"]
    engine.run([], 61_500)
    assert connected(engine) == []


def test_a_broker_that_starts_waits_a_whole_lease_and_takes_no_old_sign_for_a_new_one(tmp_path):
    engine, path = signs_of_a_client(tmp_path)
    os.utime(path, (5, 5))
    engine.restart(40_000)
    engine.run([], 69_000)
    assert connected(engine) == ["A"]
    engine.run([], 70_001)
    assert connected(engine) == []


def test_who_has_no_file_any_more_says_it_in_a_request(root):
    client = pulsar.Client(f"delta:{root}")
    presence = Presence(client._layout, "idle")
    path = presence_folder(client._layout) / "idle"
    os.utime(path, (5, 5))
    assert presence.touch() and path.stat().st_mtime > 5
    path.unlink()
    assert not presence.touch()
    presence.end()
    assert not presence.touch()
    client.close()
