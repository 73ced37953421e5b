"""Compaction by command, by job, and by a broker itself."""

import json

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.compaction import compaction_plan, compaction_upkeep
from pulsar_spark.broker.compaction.compaction import uncompacted_bytes
from pulsar_spark.broker.compaction.compaction_upkeep import CompactionUpkeep
from pulsar_spark.errors import InvalidConfiguration, TopicNotFound
from pulsar_spark.jobs import compact
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.compaction.compaction_status import compacting
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.commands import say
from tests.support.waiting import eventually


@pytest.fixture
def admin(layout):
    return Admin(f"delta:{layout.root}")


def run(layout, *arguments: str) -> str:
    return say(layout.root, *arguments)


def send(layout, topic, *messages):
    client = pulsar.Client(f"delta:{layout.root}")
    producer = client.create_producer(topic)
    for key, value in messages:
        producer.send(value, partition_key=key)
    client.close()


def version(layout, topic="t"):
    return CompactedView(read_topic(layout, topic).path).version


def test_by_command(layout, admin):
    send(layout, "t", ("a", b"1"), ("a", b"2"), ("b", b"1"))
    assert json.loads(run(layout, "topics", "compaction-status", "t", "--json")) == {
        "status": "NOT_RUN",
        "lastError": "",
    }
    assert run(layout, "compact", "t") == "compacted t: 1 messages are not in its compacted view\n"
    assert run(layout, "topics", "compaction-status", "t") == "SUCCESS\n"
    said = json.loads(run(layout, "topics", "compact", "t", "--json"))
    assert said == admin.stats("t")["compaction"]
    assert said["lastCompactionRemovedEventCount"] == 1 and said["lastCompactionSucceedTimestamp"] > 0
    with compacting(read_topic(layout, "t")):
        assert run(layout, "topics", "compaction-status", "t") == "RUNNING\n"
    with pytest.raises(TopicNotFound):
        run(layout, "compact", "another")


def test_stats_say_when_it_failed(layout, admin, monkeypatch):
    send(layout, "t", ("a", b"1"))
    monkeypatch.setattr(compaction_plan, "SMALL_MESSAGES", 0)
    with pytest.raises(pulsar.NotAllowedError):
        admin.compact("t")
    assert admin.stats("t")["compaction"]["lastCompactionFailedTimestamp"] > 0
    assert run(layout, "topics", "compaction-status", "t").startswith("ERROR NotAllowedError: ")


def test_the_threshold_by_command(layout, admin):
    admin.create_topic("t")
    with PlainBroker(layout.root):
        for group, scope in (("namespaces", "public/default"), ("topics", "t")):
            assert run(layout, group, "get-compaction-threshold", scope) == "not set\n"
            run(layout, group, "set-compaction-threshold", scope, "--threshold", "2K")
            assert run(layout, group, "get-compaction-threshold", scope) == "2048 bytes\n"
            run(layout, group, "remove-compaction-threshold", scope)
            assert run(layout, group, "get-compaction-threshold", scope, "--json") == "null\n"
        for wrong in ("much", "-1", "1X", ""):
            with pytest.raises(InvalidConfiguration, match="--threshold"):
                run(layout, "topics", "set-compaction-threshold", "t", "--threshold", wrong)


def test_the_job_compacts_what_is_above_its_threshold(layout, admin, capsys):
    send(layout, "t", ("a", b"1"), ("a", b"2"))
    send(layout, "u", ("a", b"1" * 100_000))
    small, large = (uncompacted_bytes(layout, read_topic(layout, topic)) for topic in ("t", "u"))
    assert small < large
    compact.main(["--root", str(layout.root), "--namespace", "public/default", "--threshold", str(small)])
    (said,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (said["topic"], said["status"]) == ("persistent://public/default/u", "SUCCESS")
    compact.main(["--root", str(layout.root), "--topic", "t"])
    assert json.loads(capsys.readouterr().out)["lastCompactionRemovedEventCount"] == 1
    assert uncompacted_bytes(layout, read_topic(layout, "t")) == 0


def test_a_broker_compacts_what_is_above_the_threshold(layout, admin):
    send(layout, "t", ("a", b"1"), ("a", b"2"))
    behind = uncompacted_bytes(layout, read_topic(layout, "t"))
    with PlainBroker(layout.root):
        upkeep = CompactionUpkeep(layout)
        upkeep.look()
        assert version(layout) == -1, "nobody asked for it"
        admin.set_compaction_threshold("public/default", behind)
        upkeep.look()
        assert version(layout) == -1, "it is not above it"
        send(layout, "t", ("b", b"1"))
        upkeep.look()
        assert version(layout) == 1 and admin.compaction_status("t")["status"] == "SUCCESS"
        upkeep.look()
        assert version(layout) == 1
        admin.set_compaction_threshold("persistent://public/default/t", 0)
        send(layout, "t", *[("a", b"3")] * 9)
        upkeep.look()
        assert version(layout) == 1, "a topic's own threshold goes first"
        admin.remove_compaction_threshold("persistent://public/default/t")
        upkeep.look()
        assert version(layout) == 2


def test_a_broker_looks_by_itself_and_one_topic_that_fails_is_not_the_others(layout, admin, monkeypatch):
    monkeypatch.setattr(compaction_upkeep, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(compaction_plan, "SMALL_MESSAGES", 2)
    with PlainBroker(layout.root):
        send(layout, "t", ("a", b"1"))
        send(layout, "large", ("a", b"1"), ("b", b"1"), ("c", b"1"))
        admin.set_compaction_threshold("public/default", 1)
        eventually(lambda: admin.compaction_status("t")["status"] == "SUCCESS")
        eventually(lambda: admin.compaction_status("large")["status"] == "ERROR")


def test_messages_without_a_key_stay_where_the_policy_says_so(layout, admin):
    send(layout, "t", (None, b"1"), ("a", b"1"), (None, b"2"))
    with PlainBroker(layout.root):
        admin.set_policy("persistent://public/default/t", "topic_compaction_retain_null_key", 1)
    admin.compact("t")
    assert CompactedView(read_topic(layout, "t").path).messages([-1]) == 3
