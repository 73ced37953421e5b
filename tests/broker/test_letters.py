"""Dead letters as rows of their topic: what they keep, what they say, and that there is one of each, whatever crashes when."""
from datetime import datetime, timezone

import pytest

from pulsar_spark.broker import rounds as rounds_module
from pulsar_spark.protocol.letters import dead_letter_topic
from tests.model_cursor import Letter
from tests.requests import On
from tests.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
GRAVES = "persistent://public/default/graves"
ON = On(TOPIC)


class Crash(Exception):
    """The process is gone at this point."""


def deadly_rounds(engine: SparkEngine) -> None:
    """Play until the next return of entry 0 kills it; entry 1 is acknowledged."""
    engine.round([ON.subscribe("A", max_redeliver_count=1), ON.flow("A", 99)], 1)
    engine.round([ON.negative_ack("A", 0), ON.ack(1)], 2)


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    return engine


def test_a_letter_keeps_the_message_and_says_what_became_of_it(engine):
    event_time = datetime(2024, 5, 17, tzinfo=timezone.utc)
    engine.publish(TOPIC, -1, [1], payload=b"\x00payload", properties=[("colour", "blue"), ("REAL_TOPIC", "an earlier one")], partition_key="key",
                   ordering_key="order", event_time=event_time, producer_name="p", sequence_id=7)
    deadly_rounds(engine)
    assert engine.rows(dead_letter_topic(TOPIC, "s")) == []
    engine.round([ON.negative_ack("A", 0)], 3)
    letter, = engine.rows(dead_letter_topic(TOPIC, "s"))
    assert (letter["payload"], letter["partition_key"], letter["ordering_key"], letter["event_time"]) == (b"\x00payload", "key", "order", event_time)
    assert letter["properties"] == {
        "colour": "blue", "REAL_TOPIC": "an earlier one", "REAL_SUBSCRIPTION": "s",
        "ORIGIN_MESSAGE_ID": "(1,0,-1,-1)", "ORIGIN_MESSAGE_IDY_TIME": "(1,0,-1,-1)",
        "DEAD_LETTER_CAUSE": "max_redeliver_count", "DEAD_LETTER_ATTEMPTS": "2"}
    assert (letter["entry_id"], letter["batch_size"], letter["partition"], letter["deliver_at_time"]) == (0, 1, -1, None)
    assert letter["publish_time"] == datetime(1970, 1, 1, 0, 0, 0, 3000, tzinfo=timezone.utc)
    assert letter["producer_name"] == f"{TOPIC}-s-DLQ"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_the_letters_leaves_one_of_each(engine, monkeypatch, when):
    write_letters = rounds_module.write_letters

    def write_and_die(bundle, round_number, now, facts):
        if when == "after":
            write_letters(bundle, round_number, now, facts)
        raise Crash

    engine.publish(TOPIC, -1, [2, 1])
    deadly_rounds(engine)
    with monkeypatch.context() as dying:
        dying.setattr(rounds_module, "write_letters", write_and_die)
        with pytest.raises(Crash):
            engine.round([ON.negative_ack("A", 0)], 3)
    assert len(engine.rows(dead_letter_topic(TOPIC, "s"))) == (2 if when == "after" else 0)
    engine.start()
    engine.rounds.take_over()
    expected = [Letter(-1, 0, 0, 2), Letter(-1, 0, 1, 2)]
    assert engine.letters(TOPIC, "s") == expected
    engine.round([ON.flow("A", 1)], 4)
    engine.start()
    engine.rounds.take_over()
    assert engine.letters(TOPIC, "s") == expected
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 1


def test_the_initial_subscription_sees_the_first_letter(engine):
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([ON.subscribe("A", max_redeliver_count=1, dead_letter_topic=GRAVES, initial_subscription_name="sexton"), ON.flow("A", 9)], 1)
    engine.round([ON.negative_ack("A", 0, 1)], 2)
    engine.round([ON.negative_ack("A", 0, 1)], 3)
    assert len(engine.rows(GRAVES)) == 2
    assert engine.rows(dead_letter_topic(TOPIC, "s")) == []
    sexton = On(GRAVES, subscription="sexton")
    engine.topic_ids[GRAVES] = engine.rounds.bundle.topic(GRAVES).topic.topic_id
    result = engine.round([], 4)
    assert engine.subscriptions(GRAVES) == ["sexton"]
    result = engine.round([sexton.subscribe("B", initial_position="Latest"), sexton.flow("B", 9)], 5)
    assert [(delivery.topic, delivery.position) for delivery in result["deliveries"]] == [(GRAVES, 0), (GRAVES, 1)]


def test_letters_of_later_rounds_follow(engine):
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([ON.subscribe("A", max_redeliver_count=1), ON.flow("A", 9)], 1)
    engine.round([ON.negative_ack("A", 0, 1)], 2)
    engine.round([ON.negative_ack("A", 0)], 3)
    engine.round([ON.negative_ack("A", 1)], 4)
    assert engine.letters(TOPIC, "s") == [Letter(-1, 0, -1, 2), Letter(-1, 1, -1, 2)]
    assert len({row["publish_id"] for row in engine.rows(dead_letter_topic(TOPIC, "s"))}) == 2


def test_letters_read_from_a_file_that_was_rewritten(engine):
    """OPTIMIZE may have moved the rows that a ledger's path names."""
    from deltalake import DeltaTable

    for _ in range(3):
        engine.publish(TOPIC, -1, [1, 1])
    deadly_rounds(engine)
    table = DeltaTable(str(engine.tables[TOPIC].path))
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    engine.round([ON.negative_ack("A", 0), ON.negative_ack("A", 2, 5)], 3)
    engine.round([ON.negative_ack("A", 2, 5)], 4)
    assert engine.letters(TOPIC, "s") == [Letter(-1, position, -1, 2) for position in (0, 2, 3, 4, 5)]
