"""Letters as rows of their topics: what they keep, what they say, and that there is one of each, whatever crashes
when."""

from datetime import datetime, timezone

import pytest
from deltalake import DeltaTable

from pulsar_spark.broker.letters import letters as letters_module
from pulsar_spark.broker.round import pipeline
from pulsar_spark.protocol.redelivery.letters import dead_letter_topic, retry_letter_topic
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import MESSAGES
from tests.support.crashes import Crash
from tests.support.model_cursor import Letter
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine

TOPIC = "persistent://public/default/t"
GRAVES = "persistent://public/default/graves"
ON = On(TOPIC)


def deadly_rounds(engine: SparkEngine) -> None:
    """Play until the next return of entry 0 kills it; entry 1 is acknowledged."""
    engine.round([ON.subscribe("A", max_redeliver_count=1), ON.flow("A", 99)], 1)
    engine.round([ON.negative_ack("A", 0), ON.ack(1)], 2)


def test_a_letter_keeps_the_message_and_says_what_became_of_it(engine):
    event_time = datetime(2024, 5, 17, tzinfo=timezone.utc)
    engine.publish(
        TOPIC,
        -1,
        [1],
        payload=b"\x00payload",
        properties=[("colour", "blue"), ("REAL_TOPIC", "other"), ("RECONSUMETIMES", "9"), ("ORIGIN_MESSAGE_ID", "9")],
        partition_key="key",
        ordering_key="order",
        event_time=event_time,
        producer_name="p",
        sequence_id=7,
    )
    deadly_rounds(engine)
    assert engine.rows(dead_letter_topic(TOPIC, "s")) == []
    engine.round([ON.negative_ack("A", 0)], 3)
    (letter,) = engine.rows(dead_letter_topic(TOPIC, "s"))
    assert (letter["payload"], letter["partition_key"], letter["ordering_key"], letter["event_time"]) == (
        b"\x00payload",
        "key",
        "order",
        event_time,
    )
    assert letter["properties"] == {
        "colour": "blue",
        "REAL_TOPIC": TOPIC,
        "REAL_SUBSCRIPTION": "s",
        "ORIGIN_MESSAGE_ID": "(1,0,-1,-1)",
        "ORIGIN_MESSAGE_IDY_TIME": "(1,0,-1,-1)",
        "DEAD_LETTER_CAUSE": "max_redeliver_count",
        "DEAD_LETTER_ATTEMPTS": "2",
    }
    assert (letter["entry_id"], letter["batch_size"], letter["partition"], letter["deliver_at_time"]) == (
        0,
        1,
        -1,
        None,
    )
    assert letter["publish_time"] == datetime(1970, 1, 1, 0, 0, 0, 3000, tzinfo=timezone.utc)
    assert letter["producer_name"] == f"{TOPIC}-s-DLQ"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_the_letters_leaves_one_of_each(engine, monkeypatch, when):
    write_projections = pipeline.write_projections

    def write_and_die(bundle, round_number, now, facts):
        if when == "after":
            write_projections(bundle, round_number, now, facts)
        raise Crash

    engine.publish(TOPIC, -1, [2, 1])
    deadly_rounds(engine)
    with monkeypatch.context() as dying:
        dying.setattr(pipeline, "write_projections", write_and_die)
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
    engine.round(
        [
            ON.subscribe("A", max_redeliver_count=1, dead_letter_topic=GRAVES, initial_subscription_name="sexton"),
            ON.flow("A", 9),
        ],
        1,
    )
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


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_redeliver_count": "many"},
        {"max_redeliver_count": "-1"},
        {"dead_letter_topic": "persistent://public/default/../up"},
        {"dead_letter_topic": "persistent://public/default/p-partition-7"},
        {"initial_subscription_name": "pulsar.dedup"},
        {"priority_level": "first"},
        {"priority_level": "--1"},
        {"priority_level": str(1 << 31)},
        {"lease_ms": "long"},
        {"lease_ms": "²"},
        {"lease_ms": "9" * 30},
    ],
)
def test_a_subscription_whose_letters_could_not_be_written_is_refused(engine, wrong):
    """And the broker lives on, whoever wrote the request."""
    create_topic(engine.layout, "persistent://public/default/p", 2)
    engine.publish(TOPIC, -1, [1])
    replies = engine.round([ON.subscribe("A", **{"max_redeliver_count": 1} | wrong)], 1)["replies"]
    assert [reply.error in ("InvalidConfiguration", "InvalidTopicName", "TopicNotFound") for reply in replies] == [True]
    assert engine.subscriptions(TOPIC) == []


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
    for _ in range(3):
        engine.publish(TOPIC, -1, [1, 1])
    deadly_rounds(engine)
    table = DeltaTable(str(engine.tables[TOPIC].path))
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    engine.round([ON.negative_ack("A", 0), ON.negative_ack("A", 2, 5)], 3)
    engine.round([ON.negative_ack("A", 2, 5)], 4)
    assert engine.letters(TOPIC, "s") == [Letter(-1, position, -1, 2) for position in (0, 2, 3, 4, 5)]


# Letters of messages that were put off.

RETRIES = retry_letter_topic(TOPIC, "s")


def test_a_retry_letter_is_the_message_with_the_properties_asked_for(engine):
    event_time = datetime(2024, 5, 17, tzinfo=timezone.utc)
    engine.publish(
        TOPIC,
        -1,
        [1, 2],
        payload=b"\x00payload",
        properties=[("colour", "blue")],
        partition_key="",
        ordering_key="order",
        event_time=event_time,
        producer_name="p",
        sequence_id=7,
        schema_version=3,
        uuid="p-7",
        chunk_id=0,
    )
    engine.round([ON.subscribe("A"), ON.flow("A", 9)], 1)
    engine.round(
        [
            ON.reconsume_later(
                1,
                batch_index=1,
                ack_set=[0b01],
                properties={"colour": "red", "receipt": "mine"},
                deliver_at_ms=5000,
                producer_name="t-s-A-RETRY",
                receipt=True,
            )
        ],
        2,
    )
    (letter,) = engine.rows(RETRIES)
    assert letter == dict.fromkeys(MESSAGES.schema.names) | {
        "publish_id": letter["publish_id"],
        "entry_id": 0,
        "batch_index": None,
        "batch_size": 1,
        "partition": -1,
        "partition_key": "",
        "ordering_key": "order",
        "payload": b"\x00payload",
        "properties": {"colour": "red", "receipt": "mine", "PLACE": "-1,1,1", "RECONSUMETIMES": "1"},
        "event_time": event_time,
        "publish_time": datetime(1970, 1, 1, 0, 0, 0, 2000, tzinfo=timezone.utc),
        "deliver_at_time": datetime(1970, 1, 1, 0, 0, 5, tzinfo=timezone.utc),
        "producer_name": "t-s-A-RETRY",
        "sequence_id": None,
        "chunk_id": 0,
        "num_chunks_from_msg": None,
        "total_chunk_msg_size": None,
        "schema_version": 3,
    }


def test_a_message_of_a_time_beyond_the_calendar_does_not_stop_the_broker(engine):
    """Spark publishes such times."""
    engine.publish(TOPIC, -1, [1, 1, 1], event_time=1 << 62)
    deadly_rounds(engine)
    engine.round([ON.negative_ack("A", 0), ON.reconsume_later(2)], 3)
    for topic in (dead_letter_topic(TOPIC, "s"), RETRIES):
        table = dataset_of(engine.layout.topic(parse_topic_name(topic))).to_table()
        assert table["event_time"].cast("int64").to_pylist() == [1 << 62]


def test_the_last_deliver_time_there_is(engine):
    last = 253_402_300_799_999
    engine.publish(TOPIC, -1, [1])
    engine.round([ON.create_subscription("Earliest"), ON.reconsume_later(0, deliver_at_ms=last)], 1)
    (letter,) = engine.rows(RETRIES)
    assert letter["deliver_at_time"] == datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc)


def test_letters_of_a_round_are_written_together(engine, monkeypatch):
    """Of many requests and several subscriptions: a commit per letter topic and so many letters, each cursor's in order
    of position."""
    monkeypatch.setattr(letters_module, "LETTERS_A_COMMIT", 5)
    engine.publish(TOPIC, -1, [1] * 10)
    engine.publish(TOPIC, -1, [2, 1])
    other = On(TOPIC, subscription="other")
    asked = [on.reconsume_later(position, letter_topic=RETRIES) for on in (ON, other) for position in (9, 1, 0)]
    asked += [ON.reconsume_later(10, batch_index=index, ack_set=[3 - (1 << index)]) for index in (1, 0)]
    engine.round(
        [
            ON.create_subscription("Earliest"),
            other.create_subscription("Earliest"),
            *asked,
            ON.reconsume_later(5, is_dead=True),
        ],
        1,
    )
    commits: dict[str, dict[int, str]] = {}
    for row in engine.rows(RETRIES):
        commits.setdefault(row["publish_id"], {})[row["entry_id"]] = row["properties"]["PLACE"]
    assert sorted([sorted(commit.items()) for commit in commits.values()], key=len) == [
        list(enumerate(["-1,0,-1", "-1,1,-1", "-1,9,-1"])),
        list(enumerate(["-1,0,-1", "-1,1,-1", "-1,9,-1", "-1,10,0", "-1,10,1"])),
    ]
    assert len(engine.rows(dead_letter_topic(TOPIC, "s"))) == 1


def test_large_letters_go_in_commits_of_their_own(engine, monkeypatch):
    monkeypatch.setattr(letters_module, "BYTES_A_COMMIT", 250)
    engine.publish(TOPIC, -1, [1] * 7, payload=b"x" * 100)
    engine.round([ON.create_subscription("Earliest"), *(ON.reconsume_later(position) for position in range(7))], 1)
    letters = engine.rows(RETRIES)
    assert sorted(int(row["properties"]["PLACE"].split(",")[1]) for row in letters) == list(range(7))
    assert sorted(row["entry_id"] for row in letters) == [0, 0, 0, 1, 1, 2, 2]


def test_letters_are_spread_over_the_partitions_of_their_topic(engine):
    """By key, as a producer would, and in turn where there is none; a name with a partition means that partition."""
    create_topic(engine.layout, RETRIES, 2)
    engine.publish(TOPIC, -1, [1] * 4)
    engine.publish(TOPIC, -1, [1] * 4, partition_key="k")
    asked = [ON.reconsume_later(position) for position in range(8)]
    asked += [ON.reconsume_later(8 + number, letter_topic=f"{RETRIES}-partition-1") for number in range(2)]
    engine.publish(TOPIC, -1, [1] * 2)
    engine.round([ON.create_subscription("Earliest"), *asked], 1)
    places = {int(row["properties"]["PLACE"].split(",")[1]): row["partition"] for row in engine.rows(RETRIES)}
    assert sorted(places) == list(range(10))
    assert sorted(places[position] for position in range(4)) == [0, 0, 1, 1]
    assert len({places[position] for position in range(4, 8)}) == 1
    assert [places[8], places[9]] == [1, 1]
    retries = On(RETRIES, 0)
    engine.topic_ids[RETRIES] = engine.rounds.bundle.topic(RETRIES).topic.topic_id
    engine.round([retries.create_subscription("Earliest")], 2)
    assert engine.rounds.bundle.topic(RETRIES).error is None, "entry ids are dense in each partition"


@pytest.mark.parametrize(
    "wrong",
    [
        {"letter_topic": "persistent://public/default/../up"},
        {"letter_topic": "persistent://public/default/p-partition-7"},
        {"letter_topic": ""},
        {"initial_subscription_name": "pulsar.dedup"},
        {"deliver_at_ms": "soon"},
        {"deliver_at_ms": "9" * 15},
        {"deliver_at_ms": "9" * 5000},
        {"batch_index": "first"},
    ],
)
def test_a_letter_that_cannot_be_written_is_refused_before_anything_is_done(engine, wrong):
    create_topic(engine.layout, "persistent://public/default/p", 2)
    engine.publish(TOPIC, -1, [1])
    request = ON.reconsume_later(0, receipt=True)
    request["properties"] |= wrong
    replies = engine.round([ON.create_subscription("Earliest"), request], 1)["replies"]
    assert [reply.error for reply in replies if reply.request_id == request["request_id"]] != [None]
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == -1
    assert engine.rows(RETRIES) == []


def put_off(engine: SparkEngine) -> None:
    """One round with letters to two topics, of a batch, of an entry put off twice, and of one that dies."""
    engine.round(
        [
            ON.negative_ack("A", 4),
            ON.reconsume_later(0),
            ON.reconsume_later(1, batch_index=0, ack_set=[0b110]),
            ON.reconsume_later(0),
            ON.reconsume_later(1, batch_index=2, ack_set=[0b011]),
            ON.reconsume_later(3, is_dead=True, initial_subscription_name="sexton"),
        ],
        3,
    )


@pytest.fixture
def engine_with_work(engine) -> SparkEngine:
    engine.publish(TOPIC, -1, [1, 3, 1, 1, 1])
    engine.round([ON.subscribe("A", max_redeliver_count=1), ON.flow("A", 99)], 1)
    engine.round([ON.negative_ack("A", 4)], 2)
    return engine


PUT_OFF = [Letter(-1, 0, -1, 1), Letter(-1, 1, 0, 1), Letter(-1, 1, 2, 1)]
DIED = [Letter(-1, 3, -1, 1), Letter(-1, 4, -1, 2)]


@pytest.mark.default
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("write", ["the round", "the first letters", "the second letters"])
def test_a_crash_at_any_write_leaves_one_letter_and_one_acknowledgement(engine_with_work, monkeypatch, write, when):
    engine, method = engine_with_work, "append_fenced" if write == "the round" else "append_once"
    dies_at = 2 if write == "the second letters" else 1
    append, appends = getattr(AppendTable, method), []

    def append_and_die(*arguments):
        appends.append(arguments)
        if len(appends) < dies_at:
            return append(*arguments)
        if when == "after":
            append(*arguments)
        raise Crash

    with monkeypatch.context() as dying:
        dying.setattr(AppendTable, method, append_and_die)
        with pytest.raises(Crash):
            put_off(engine)
    is_decided = write != "the round" or when == "after"
    engine.start()
    engine.rounds.take_over()
    assert engine.letters_put_off(TOPIC, "s") == (PUT_OFF if is_decided else [])
    put_off(engine)
    for _ in range(2):
        assert engine.letters_put_off(TOPIC, "s") == PUT_OFF
        assert engine.letters(TOPIC, "s") == DIED
        state = engine.state(TOPIC, -1, "s")
        assert (
            state["mark_delete_position"],
            state["acknowledged"][0][0],
            state["acknowledged"][-1][1],
            state["ack_sets"],
        ) == (0, 3, 4, {1: (0b010,)})
        engine.start()
        engine.rounds.take_over()
        engine.round([], 9)
    graves = dead_letter_topic(TOPIC, "s")
    engine.topic_ids[graves] = engine.rounds.bundle.topic(graves).topic.topic_id
    assert engine.subscriptions(graves) == ["sexton"]


def test_the_round_says_the_letter_and_the_acknowledgement_in_one_commit(engine_with_work):
    engine = engine_with_work
    put_off(engine)
    rows = read_round(engine.layout.broker_table("cursor_ledger"), engine.read_version).to_pylist()
    letters = [row for row in rows if row["kind"] == "letter"]
    assert [
        (row["status"], row["first"], row["ack_set"], row["redelivery_count"], row["request_id"] is not None)
        for row in letters
    ] == [
        ("retry", 0, None, 0, True),
        ("retry", 1, [0b001], 0, True),
        ("retry", 1, [0b100], 0, True),
        ("dead", 3, None, 0, True),
        ("dead", 4, None, 2, False),
    ]
    assert [row["mark_delete_position"] for row in rows if row["kind"] == "cursor"] == [0]


def test_a_subscription_that_is_there_is_not_asked_for_again(engine_with_work):
    engine = engine_with_work
    put_off(engine)
    assert [reply.error for reply in engine.round([], 4)["replies"]] == [None]
    engine.round([ON.reconsume_later(2, is_dead=True, initial_subscription_name="sexton")], 5)
    assert engine.round([], 6)["replies"] == []


def test_a_letter_asked_for_before_the_subscription_is_deleted_is_written(engine):
    engine.publish(TOPIC, -1, [1])
    engine.round([ON.create_subscription("Earliest")], 1)
    engine.round([ON.reconsume_later(0, is_dead=True), ON.unsubscribe(force=True)], 2)
    assert engine.subscriptions(TOPIC) == []
    assert engine.letters(TOPIC, "s") == [Letter(-1, 0, -1, 1)]
