"""A broker that dies before or after any of a round's writes, and the next one that starts from the tables: the same
outcome as without the crash."""

import pytest

from pulsar_spark.broker.requests.request import Request
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.storage.ledgers.ledgers import read_ledgers, runs_of
from tests.support.crashes import Crash, crash_at
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def steps() -> list[tuple[list[int], list[dict]]]:
    """(entries published, requests) of each round of the history."""
    return [
        ([1, 1, 1, 4], [ON.subscribe("A"), ON.flow("A", 5)]),
        ([1, 1], [ON.ack(1), ON.ack(3, ack_set=[0b0101]), ON.negative_ack("A", 2), ON.subscribe("B"), ON.flow("B", 4)]),
        ([], [ON.ack(0), ON.close("A"), ON.flow("B", 10)]),
    ]


def play(engine: SparkEngine, crash: tuple[int, str, str] | None) -> dict:
    """Play the history; with *crash* (round, table, when) a broker dies there and another starts. The state, after
    settling."""
    engine.create_topic(TOPIC)
    for number, (entries, requests) in enumerate(steps()):
        if entries:
            engine.publish(TOPIC, -1, entries, publish_time_ms=0)
        version = number + 1
        if crash and crash[0] == number:
            if crash[1] == "ledgers" and not entries:
                pytest.skip("nothing is numbered in this round")
            with crash_at(engine, crash[1], crash[2]), pytest.raises(Crash):
                engine.rounds.run([request_of(row) for row in requests], version)
            engine.start()
            engine.rounds.take_over()
        if engine.rounds.bundle.requests_version < version:
            engine.rounds.run([request_of(row) for row in requests], version)
        while engine.rounds.run([], version).is_committed:
            pass
    engine.round([], 10)
    return engine.state(TOPIC, -1, "s")


def request_of(row: dict) -> Request:
    return Request(
        **{name: row.get(name) for name in Request._fields if name != "properties"},
        properties=dict(row.get("properties") or {}),
    )


@pytest.fixture(scope="module")
def uncrashed(spark, tmp_path_factory) -> dict:
    return play(new_engine(spark, tmp_path_factory.mktemp("uncrashed")), None)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("table", ["ledgers", "cursor_ledger"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_crash_loses_nothing_and_repeats_nothing(spark, tmp_path, uncrashed, number, table, when):
    engine = new_engine(spark, tmp_path)
    assert play(engine, (number, table, when)) == uncrashed
    rows, _ = read_ledgers(engine.layout.broker_table("ledgers"))
    assert [(run.first_position, run.entries) for _, _, run in runs_of(rows)] == [(0, 3), (3, 1), (4, 2)], (
        "each entry is numbered once"
    )


def test_the_uncrashed_history_is_what_it_should_be(uncrashed):
    assert uncrashed["mark_delete_position"] == 1
    assert {position: held[:2] for position, held in uncrashed["pending"].items()} == {
        2: ("B", 1),
        3: ("B", 0),
        4: ("B", 0),
        5: ("B", 0),
    }
    assert uncrashed["ack_sets"] == {3: (0b0101,)}


def test_a_broker_that_was_taken_over_stops_at_its_next_commit(spark, tmp_path):
    first = new_engine(spark, tmp_path)
    first.create_topic(TOPIC)
    first.publish(TOPIC, -1, [1, 1])
    first.round([ON.subscribe("A"), ON.flow("A", 1)], 1)
    second = SparkEngine(spark, first.layout)
    second.rounds.take_over()
    with pytest.raises(BrokerFenced, match="another broker"):
        first.rounds.run([request_of(ON.flow("A", 1))], 2)
    second.rounds.run([request_of(ON.flow("A", 1))], 2)
    assert second.rounds.bundle.epoch == 1
    assert second.rounds.bundle.cursors.popitem()[1].unacked == {"A": 2}


def test_an_idle_round_commits_nothing(spark, tmp_path):
    engine = new_engine(spark, tmp_path)
    engine.create_topic(TOPIC)
    engine.round([ON.subscribe("A"), ON.flow("A", 1)], 1)
    before = engine.rounds.bundle.round
    assert not engine.rounds.run([], 1).is_committed
    assert engine.rounds.bundle.round == before


def test_a_topic_made_anew_starts_clean(spark, tmp_path):
    from pulsar_spark.storage.topics.topics import delete_topic

    engine = new_engine(spark, tmp_path)
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([ON.subscribe("A"), ON.flow("A", 9)], 1)
    delete_topic(engine.layout, TOPIC)
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1])
    result = engine.round([ON.subscribe("A"), ON.flow("A", 9)], 2)
    assert [delivery.position for delivery in result["deliveries"]] == [0]
    assert engine.state(TOPIC, -1, "s")["consumers"]["A"]["permits"] == 8
