"""Looking at a backlog and at single messages: what is shown, that nothing moves, and what is refused. Over real
rounds."""

import json

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from pulsar_spark.admin import Admin
from pulsar_spark.cli import app
from pulsar_spark.errors import (
    InvalidConfiguration,
    InvalidMessage,
    NotAllowedError,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.storage.upkeep.trimming import trim_topic
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON, IDLE = On(TOPIC), On(TOPIC, subscription="idle")


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    """Ledger 1 has entries 0 and 1 (a batch of three), ledger 2 entries 2 to 4, ledger 3 entry 5; a consumer of "s"
    holds them all, "idle" has none."""
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    for entries in ([1, 3], [1, 1, 1], [1]):
        engine.publish(TOPIC, -1, entries, payload=b"secret", partition_key=f"k{len(entries)}")
    engine.round([ON.subscribe("A"), ON.flow("A", 20), IDLE.create_subscription("Earliest")], 0)
    return engine


@pytest.fixture
def admin(engine) -> Admin:
    return Admin(f"delta:{engine.layout.root}")


def ids(messages) -> list[str]:
    return [str(message.message_id()) for message in messages]


def positions(messages) -> list[int]:
    return [message._position for message in messages]


def test_the_next_messages_are_shown_and_nothing_moves(admin, engine):
    before = engine.state(TOPIC, -1, "s")
    assert before["read_position"] == 6, "the consumer holds all entries"
    log = TableLog(engine.layout.broker_table("requests"))
    version = log.latest()
    shown = admin.peek_messages(TOPIC, "s", 5)
    assert ids(shown) == ["(1,0,-1,-1)", "(1,1,-1,0)", "(1,1,-1,1)", "(1,1,-1,2)", "(2,0,-1,-1)"]
    assert (shown[0].data(), shown[0].partition_key()) == (b"secret", "k2")
    assert ids(admin.peek_messages(TOPIC, "idle", 5)) == ids(shown)
    assert positions(admin.peek_messages(TOPIC, "s", 100)) == [0, 1, 1, 1, 2, 3, 4, 5]
    engine.round([], 1)
    assert (engine.state(TOPIC, -1, "s"), log.latest()) == (before, version)


def test_what_is_acknowledged_is_passed_over_to_the_message(admin, engine):
    engine.round([ON.ack(0), ON.ack(1, ack_set=[0b101]), ON.ack(3)], 1)
    assert ids(admin.peek_messages(TOPIC, "s", 4)) == ["(1,1,-1,0)", "(1,1,-1,2)", "(2,0,-1,-1)", "(2,2,-1,-1)"]
    assert positions(admin.peek_messages(TOPIC, "s", 9, at=3)) == [4, 5]
    assert positions(admin.peek_messages(TOPIC, "s", 9, at=MessageId(-1, 2, 2))) == [4, 5]
    engine.round([ON.clear_backlog()], 2)
    assert admin.peek_messages(TOPIC, "s", 9) == []


def test_one_message_acknowledged_or_not(admin, engine):
    engine.round([ON.clear_backlog()], 1)
    assert ids([admin.get_message_by_id(TOPIC, 1, 1)]) == ["(1,1,-1,0)"]
    assert (
        ids(admin.get_messages_by_id(TOPIC, 1, 1))
        == ["(1,1,-1,0)", "(1,1,-1,1)", "(1,1,-1,2)"]
        == ids(admin.get_messages_at(TOPIC, 1))
    )
    assert ids(admin.get_messages_at(TOPIC, MessageId(-1, 3, 0))) == ["(3,0,-1,-1)"]
    for place in ((None, 1), (1, "1"), ([], 1.5)):
        with pytest.raises(ValueError, match="argument (ledger|entry)_id"):
            admin.get_message_by_id(TOPIC, *place)


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_what_was_trimmed_is_gone(admin, engine, is_vacuumed):
    engine.round([ON.clear_backlog(), IDLE.clear_backlog()], 1)
    trim_topic(
        engine.layout,
        read_topic(engine.layout, TOPIC),
        [-1],
        now=engine.rounds.bundle.topic(TOPIC).ledgers(-1).runs[-1].max_publish_time,
    )
    if is_vacuumed:
        DeltaTable(str(read_topic(engine.layout, TOPIC).path)).vacuum(
            retention_hours=0, dry_run=False, enforce_retention_duration=False
        )
    with pytest.raises(InvalidMessage, match="position 2 .* was trimmed"):
        admin.get_message_by_id(TOPIC, 2, 0)
    assert ids(admin.get_messages_at(TOPIC, 5)) == ["(3,0,-1,-1)"]


def test_what_cannot_be_shown_says_why(admin, engine):
    with pytest.raises(SubscriptionNotFound, match="no subscription 'none'"):
        admin.peek_messages(TOPIC, "none")
    with pytest.raises(TopicNotFound):
        admin.peek_messages("none", "s")
    for wrong in (
        lambda: admin.peek_messages(TOPIC, "s", 0),
        lambda: admin.peek_messages(TOPIC, "s", at=-1),
        lambda: admin.get_messages_at(TOPIC, "1"),
    ):
        with pytest.raises(InvalidConfiguration):
            wrong()
    with pytest.raises(InvalidMessage, match="no position 6: give one from 0 to 5"):
        admin.get_messages_at(TOPIC, 6)
    for missing in (MessageId(-1, 1, 2), MessageId(-1, 4, 0), MessageId(-1, 0, 0)):
        with pytest.raises(InvalidMessage, match="has no message"):
            admin.peek_messages(TOPIC, "s", at=missing)
    with pytest.raises(InvalidMessage, match="another partition"):
        admin.get_messages_at(TOPIC, MessageId(3, 1, 0))


def test_of_a_partitioned_topic_one_partition_is_named(admin, engine):
    engine.create_topic(f"{TOPIC}2", 2)
    for partition in (0, 1):
        engine.publish(f"{TOPIC}2", partition, [1, 1])
    engine.round([On(f"{TOPIC}2", partition).create_subscription("Earliest") for partition in (0, 1)], 1)
    with pytest.raises(NotAllowedError, match="look at one partition, such as .*t2-partition-0"):
        admin.peek_messages(f"{TOPIC}2", "s")
    assert ids(admin.peek_messages(f"{TOPIC}2-partition-1", "s", 9)) == ["(2,0,1,-1)", "(2,1,1,-1)"]
    assert ids(admin.peek_messages(f"{TOPIC}2", "s", 9, at=MessageId(1, 2, 1))) == ["(2,1,1,-1)"]
    assert ids([admin.get_message_by_id(f"{TOPIC}2-partition-0", 1, 1)]) == ["(1,1,0,-1)"]


def test_the_command_line_shows_facts_and_writes_payloads_only_to_a_file(admin, engine, tmp_path):
    def run(*arguments):
        done = CliRunner().invoke(
            app, arguments, env={"PULSAR_SPARK_ROOT": str(engine.layout.root)}, catch_exceptions=False
        )
        assert done.exit_code == 0
        assert "secret" not in done.output
        return done.stdout.splitlines()

    payloads = tmp_path / "payloads"
    shown = [
        json.loads(line)
        for line in run(
            "subscriptions", "peek", "t", "-s", "s", "-n", "2", "--at", "2:1:-1", "--json", "--output", str(payloads)
        )
    ]
    assert [(each["messageId"], each["position"], each["key"], each["size"]) for each in shown] == [
        ("(2,1,-1,-1)", 3, "k3", 6),
        ("(2,2,-1,-1)", 4, "k3", 6),
    ]
    assert payloads.read_bytes() == b"secret\n" * 2
    assert run("subscriptions", "peek", "t", "-s", "s", "--at", "4") == ["(2,2,-1,-1) position=4 key='k3' size=6"]
    assert [
        line.split()[:2] for line in run("topics", "get-message-by-id", "t", "(1,1,-1,-1)", "-o", str(payloads))
    ] == [[f"(1,1,-1,{index})", "position=1"] for index in range(3)]
    assert payloads.read_bytes() == b"secret\n" * 5
