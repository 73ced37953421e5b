"""Rows of Key_Shared cursors are few however the entries of their consumers lie, and a start finds what was there."""

import pytest

from pulsar_spark.protocol.acknowledgement.cursor import DELIVERY_ROUND
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from tests.broker.test_key_shared_dues import ON, TOPIC, join, keys


def delivered(result: dict) -> list[int]:
    return [each.position for each in result["deliveries"]]


def test_what_is_acknowledged_and_given_back_in_turns_is_planned_as_few_rows(engine, monkeypatch):
    """A tenth of all is given back until later and comes again, the rest is acknowledged: one row for each state."""
    engine.round([join("a", "0-65535"), ON.flow("a", 1000)], 0)
    known = keys(True)
    engine.publish(TOPIC, -1, [1] * 300, keys=[known[at % len(known)] for at in range(300)])
    engine.round([], 0)
    planned, plan = [], engine.rounds.plan
    monkeypatch.setattr(engine.rounds, "plan", lambda work: planned.append(work.rows.num_rows) or plan(work))
    given_back = [ON.negative_ack("a", at, delay_ms=1000) for at in range(0, 300, 10)]
    done = [ON.ack(at, at + 8, consumer="a") for at in range(1, 300, 10)]
    engine.round([*done, *given_back], 0)
    assert sorted(engine.state(TOPIC, -1, "s")["pending"]) == list(range(0, 300, 10))
    again = [each for _ in range(2) for each in engine.round([], 2000)["deliveries"]]  # back, then dealt
    assert [(each.position, each.redelivery_count) for each in again] == [(at, 1) for at in range(0, 300, 10)]
    assert max(planned) <= 8


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_the_last_consumers_leave_comes_back_as_few_rows(engine, monkeypatch, is_restarted):
    """As when a client's process is killed: entry by entry it would be a row an entry, of two consumers in turns."""
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 1000), ON.flow("b", 1000)], 0)
    mine, others = keys(True), keys(False)
    engine.publish(TOPIC, -1, [1] * 300, keys=[(mine, others)[at % 2][at % 7] for at in range(300)])
    engine.round([], 0)
    engine.round([ON.ack(at, at, consumer="ab"[at % 2]) for at in range(1, 300, 10)], 0)
    if is_restarted:
        engine.restart(0)
    planned, plan = [], engine.rounds.plan
    monkeypatch.setattr(engine.rounds, "plan", lambda work: planned.append(work.rows.num_rows) or plan(work))
    gone = [ON.ack(at, at, consumer="a") for at in range(2, 300, 10)]
    engine.round([*gone, ON.close("a"), ON.close("b")], 1)
    assert max(planned) <= 7
    done = {*range(1, 300, 10), *range(2, 300, 10)}
    state = engine.state(TOPIC, -1, "s")
    assert (state["pending"], state["replay"]) == ({}, dict.fromkeys({*range(300)} - done, 0))
    engine.restart(2)
    result = engine.round([join("c", "0-65535"), ON.flow("c", 1000)], 2)
    assert delivered(result) == sorted({*range(300)} - done)


def test_who_joins_as_the_last_one_leaves_may_have_hashes_that_lie_elsewhere(engine):
    """Of slots and of the hash itself."""
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 9), ON.flow("b", 9)], 0)
    mine, others = keys(True), keys(False)
    engine.publish(TOPIC, -1, [1] * 8, keys=[key for pair in zip(mine[:4], others[:4]) for key in pair])
    engine.round([], 0)
    leave_and_join = [ON.close("a"), ON.close("b"), ON.subscribe("c", "KeyShared"), ON.subscribe("d", "KeyShared")]
    dealt = engine.round([*leave_and_join, ON.flow("c", 9), ON.flow("d", 9)], 1)["deliveries"]
    dealt += engine.round([], 2)["deliveries"]
    assert sorted(each.position for each in dealt) == [*range(8)]
    before = engine.state(TOPIC, -1, "s")
    engine.restart(3)
    engine.round([ON.flow("c", 1)], 3)
    assert engine.state(TOPIC, -1, "s")["pending"] == before["pending"]


def _ranges(engine) -> list[dict]:
    """The rows of ranges of the last round."""
    rows = read_round(engine.layout.broker_table("cursor_ledger"), engine.rounds.bundle.version).to_pylist()
    return [row for row in rows if row["kind"] == "range"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_answer_to_a_whole_delivery_is_one_row_however_its_entries_lie(engine, is_restarted):
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 1000), ON.flow("b", 1000)], 0)
    mine, others = keys(True), keys(False)
    engine.publish(TOPIC, -1, [1] * 300, keys=[(mine, others)[at % 2][at % 7] for at in range(300)])
    engine.round([], 0)
    number = engine.rounds.bundle.round
    rows = _ranges(engine)
    assert [(row["first"], row["last"], len(row["positions"])) for row in rows] == [(0, 298, 150), (1, 299, 150)]
    if is_restarted:
        engine.restart(0)
    answer = ON.ack(1, 299, consumer="b") | {"properties": {DELIVERY_ROUND: str(number)}}
    engine.round([answer], 1)
    (row,) = _ranges(engine)
    assert (row["first"], row["last"], row["consumer_id"], row["positions"]) == (1, 299, "b", None)
    assert [*engine.state(TOPIC, -1, "s")["pending"]] == list(range(0, 300, 2))
    engine.restart(2)
    engine.round([ON.ack(0, 290, consumer="a")], 3)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 291
