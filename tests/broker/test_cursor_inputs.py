"""Cursors whose entries are kept as a map: rows of the plan and of the round are few however entries lie, and a start
finds what was there, also where a cursor is kept otherwise from a round on."""

import pytest

from pulsar_spark.broker.planning.work import Work
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
SHARED, KEY_SHARED = {"subscription_type": "Shared"}, {"subscription_type": "KeyShared"}


@pytest.fixture
def engine(tmp_path):
    made = new_engine(None, tmp_path)
    made.create_topic(TOPIC)
    return made


def cursor_of(engine):
    (cursor,) = engine.rounds.bundle.cursors.values()
    return cursor


def said(engine) -> list[tuple]:
    return [(held.first, held.last, held.status, held.consumer_id) for held in cursor_of(engine).ranges()]


def planned(engine, monkeypatch) -> list[Work]:
    """The work of the rounds from now on."""
    works, plan = [], engine.rounds.plan

    def note(work: Work):
        works.append(work)
        return plan(work)

    monkeypatch.setattr(engine.rounds, "plan", note)
    return works


def ranges_of(work: Work) -> list[dict]:
    return [row for row in work.rows.to_pylist() if row["kind"] == "range"]


def test_acknowledgements_all_over_are_one_row_of_the_plan_and_a_range_each_of_the_round(engine, monkeypatch):
    engine.publish(TOPIC, -1, [1] * 400)
    engine.round([ON.subscribe("A", **SHARED), ON.flow("A", 400)], 0)
    engine.round([ON.ack(position) for position in range(1, 400, 2)], 1)
    works = planned(engine, monkeypatch)
    engine.round([ON.ack(position) for position in range(100, 300, 20)], 2)
    assert [row["is_acked"] for row in ranges_of(works[0])] == [True]
    rows = read_round(engine.layout.broker_table("cursor_ledger"), engine.rounds.bundle.version)
    ranges = rows.filter((rows["kind"].to_pandas() == "range").to_numpy())
    assert ranges["first"].to_pylist() == list(range(100, 300, 20))


def test_entries_that_come_back_and_go_out_again_are_one_row_of_the_plan(engine, monkeypatch):
    engine.publish(TOPIC, -1, [1] * 100)
    engine.round([ON.subscribe("A", **SHARED), ON.flow("A", 200)], 0)
    works = planned(engine, monkeypatch)
    engine.round([ON.negative_ack("A", position) for position in range(99, 0, -7)], 1)
    assert [row["return_time"] is None for row in ranges_of(works[0])] == [False]
    again = [held for held in cursor_of(engine).ranges() if held.redelivery_count]
    assert [held.first for held in again] == list(range(1, 100, 7))
    assert {held.delivery_round for held in again} == {engine.rounds.bundle.round}


def test_a_start_finds_the_map_that_rounds_left(engine):
    engine.publish(TOPIC, -1, [1, 1, 3, 3] * 10)
    engine.round([ON.subscribe("A", **SHARED), ON.flow("A", 60)], 0)
    engine.round([ON.ack(0), ON.ack(2, ack_set=[0b101]), ON.negative_ack("A", 5, delay_ms=1000), ON.ack(7, 9)], 1)
    before, unacked = list(cursor_of(engine).ranges()), cursor_of(engine).unacked
    engine.start()
    assert cursor_of(engine).entries is not None
    assert (list(cursor_of(engine).ranges()), cursor_of(engine).unacked) == (before, unacked)
    assert [held.ack_set for held in before if held.ack_set] == [(0b101,)]


def test_a_cursor_stays_a_map_whatever_type_its_consumers_have(engine):
    engine.publish(TOPIC, -1, [1] * 6)
    engine.round([ON.subscribe("A", **SHARED), ON.flow("A", 4), ON.ack(1)], 0)
    engine.round([ON.close("A")], 1)
    engine.round([ON.subscribe("B", **KEY_SHARED), ON.flow("B", 2)], 2)
    expected = [(0, 0, PENDING, "B"), (1, 1, ACKNOWLEDGED, None), (2, 2, PENDING, "B"), (3, 4, REPLAY, None)]
    assert said(engine) == expected
    engine.start()
    assert said(engine) == expected
    engine.round([ON.close("B")], 3)
    engine.round([ON.subscribe("A", **SHARED), ON.flow("A", 1)], 4)
    expected = [(0, 0, PENDING, "A"), (1, 1, ACKNOWLEDGED, None), (2, 4, REPLAY, None)]
    assert said(engine) == expected
    engine.start()
    assert said(engine) == expected


def test_a_cursor_that_is_moved_begins_anew_for_who_starts_too(engine):
    engine.publish(TOPIC, -1, [1] * 6)
    engine.round([ON.subscribe("A", **SHARED), ON.flow("A", 6)], 0)
    engine.round([ON.ack(1, 3), ON.ack(5)], 1)
    engine.round([ON.seek("2")], 2)
    assert said(engine) == []
    engine.start()
    assert (said(engine), cursor_of(engine).mark_delete, cursor_of(engine).unacked) == ([], 1, {})
