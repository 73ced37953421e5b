"""A Key_Shared cursor kept by lane: how many rows it may come to where entries wait, and which of its lanes a round
makes anew."""

import gc
from weakref import ref

import pytest

from pulsar_spark.broker.gathering import gather
from pulsar_spark.broker.key_shared import keyed, keyed_lanes
from pulsar_spark.broker.key_shared.lane_form import LaneForm
from tests.broker.test_key_shared_dues import ON, TOPIC, join, keys


@pytest.fixture(autouse=True)
def by_lane(monkeypatch):
    monkeypatch.setattr(gather, "LANES_FROM", -1)
    monkeypatch.setattr(gather, "EXACT_BELOW", -1)


def delivered(result: dict) -> list[int]:
    return [each.position for each in result["deliveries"]]


@pytest.mark.parametrize(
    ("most_rows", "found"), [(10, [2, 4, 6]), (4, [2]), (keyed_lanes._MOST_ROWS, [*range(2, 20, 2)])]
)
def test_the_more_rows_there_are_the_less_is_looked_ahead(engine, monkeypatch, most_rows, found):
    """Every second entry waits for the first one, which was given back; each that is passed over will cut a range."""
    monkeypatch.setattr(keyed_lanes, "_MOST_ROWS", most_rows)
    monkeypatch.setattr(keyed_lanes, "_LEAST_LOOK_AHEAD", 2)
    waiting, other = keys(True)[:2]
    engine.publish(TOPIC, -1, [1], keys=[waiting])
    assert delivered(engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 1)], 0)) == [0]
    engine.round([ON.negative_ack("a", 0, delay_ms=60_000)], 0)
    engine.publish(TOPIC, -1, [1] * 20, keys=[waiting, other] * 10)
    assert delivered(engine.round([ON.flow("a", 9)], 0)) == found
    (cursor,) = engine.rounds.bundle.cursors.values()
    assert sum(1 for _ in cursor.lanes.every_range()) <= most_rows


def test_lanes_of_which_nothing_changes_are_not_made_anew(engine, monkeypatch):
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 9), ON.flow("b", 9)], 0)
    mine, others = keys(True), keys(False)
    engine.publish(TOPIC, -1, [1] * 8, keys=[key for pair in zip(mine[:4], others[:4]) for key in pair])
    engine.round([], 0)
    made, ranges_of = [], LaneForm._ranges
    monkeypatch.setattr(LaneForm, "_ranges", lambda form, places: made.append(len(places)) or ranges_of(form, places))
    engine.round([ON.ack(at, at, consumer="b") for at in (1, 3, 7)], 0)
    assert made == [4]
    assert sorted(engine.state(TOPIC, -1, "s")["pending"]) == [0, 2, 4, 5, 6]


def test_a_form_that_is_done_with_goes_at_once(engine):
    """It may hold numbers of millions of entries, which must not wait for Python's search for cycles."""
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 9), ON.flow("b", 9)], 0)
    engine.publish(TOPIC, -1, [1] * 4, keys=keys(True)[:2] + keys(False)[:2])
    engine.round([], 0)
    (cursor,) = engine.rounds.bundle.cursors.values()
    known = cursor.lanes
    gc.disable()
    try:
        form = LaneForm(known.hashes, known.base, known.lanes)
        gone = ref(form)
        assert form.end == 4
        del form
        assert gone() is None
    finally:
        gc.enable()


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
def test_what_the_last_consumers_leave_comes_back_as_few_rows_and_is_exact_then(engine, monkeypatch, is_restarted):
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
    (cursor,) = engine.rounds.bundle.cursors.values()
    assert cursor.lanes is None
    done = {*range(1, 300, 10), *range(2, 300, 10)}
    state = engine.state(TOPIC, -1, "s")
    assert (state["pending"], state["replay"]) == ({}, dict.fromkeys({*range(300)} - done, 0))
    engine.restart(2)
    result = engine.round([join("c", "0-65535"), ON.flow("c", 1000)], 2)
    assert delivered(result) == sorted({*range(300)} - done)


def test_who_joins_as_the_last_one_leaves_may_have_hashes_that_lie_elsewhere(engine):
    """Of slots and of the hash itself: lanes of the one mean nothing on the axis of the other."""
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 9), ON.flow("b", 9)], 0)
    mine, others = keys(True), keys(False)
    engine.publish(TOPIC, -1, [1] * 8, keys=[key for pair in zip(mine[:4], others[:4]) for key in pair])
    engine.round([], 0)
    leave_and_join = [ON.close("a"), ON.close("b"), ON.subscribe("c", "KeyShared"), ON.subscribe("d", "KeyShared")]
    dealt = engine.round([*leave_and_join, ON.flow("c", 9), ON.flow("d", 9)], 1)["deliveries"]
    dealt += engine.round([], 2)["deliveries"]
    assert sorted(each.position for each in dealt) == [*range(8)]
    (cursor,) = engine.rounds.bundle.cursors.values()
    before = engine.state(TOPIC, -1, "s")
    assert {lane.hashes.axis for lane in cursor.lanes.lanes.values()} == {cursor.selector.axis}
    engine.restart(3)
    engine.round([ON.flow("c", 1)], 3)
    assert engine.state(TOPIC, -1, "s")["pending"] == before["pending"]


def test_a_cursor_that_is_kept_exact_and_by_lane_again_in_one_round_keeps_its_lanes(engine, monkeypatch):
    """Few are in flight and many go out: lanes that are dropped have the numbers of those that are made."""
    monkeypatch.setattr(gather, "LANES_FROM", 4)
    monkeypatch.setattr(gather, "EXACT_BELOW", 5)
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 99), ON.flow("b", 99)], 0)
    in_turns = [key for pair in zip(keys(True)[:5], keys(False)[:5]) for key in pair]
    engine.publish(TOPIC, -1, [1] * 10, keys=in_turns)
    assert sorted(delivered(engine.round([], 0))) == [*range(10)]
    engine.round([ON.ack(at, at, consumer="ab"[at % 2]) for at in range(8)], 0)
    engine.publish(TOPIC, -1, [1] * 10, keys=in_turns)
    assert sorted(delivered(engine.round([], 0))) == [*range(10, 20)]
    assert [*engine.state(TOPIC, -1, "s")["pending"]] == [*range(8, 20)]
    engine.restart(1)
    engine.round([ON.ack(8, 19)], 1)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 19


def test_runs_that_several_looks_find_part_by_part_are_too_many_all_the_same(engine, monkeypatch):
    """Runs of six entries, found by looks at four: each look counts what it finds as another one. The round finds no
    more of them than may be kept exact, because it has stopped to look."""
    monkeypatch.setattr(gather, "LANES_FROM", 4)
    monkeypatch.setattr(keyed, "WINDOW_ENTRIES", (4, 4))
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 99), ON.flow("b", 99)], 0)
    engine.publish(TOPIC, -1, [1] * 60, keys=([keys(True)[0]] * 6 + [keys(False)[0]] * 6) * 5)
    assert sorted(delivered(engine.round([], 0))) == [*range(60)]


@pytest.mark.parametrize(
    ("ranges", "is_by_lane"), [({"a": "0-32767", "b": "32768-65535"}, True), ({"a": "0-65535"}, False)]
)
def test_many_entries_in_few_ranges_go_by_lane_unless_one_consumer_gets_all(engine, monkeypatch, ranges, is_by_lane):
    monkeypatch.setattr(gather, "LANES_FROM", 100)
    monkeypatch.setattr(gather, "LANES_FROM_ENTRIES", 7)
    for consumer, owned in ranges.items():
        engine.round([join(consumer, owned), ON.flow(consumer, 99)], 0)
    engine.publish(TOPIC, -1, [1] * 8, keys=[keys(True)[0]] * 4 + [keys(False)[0]] * 4)
    assert sorted(delivered(engine.round([], 0))) == [*range(8)]
    (cursor,) = engine.rounds.bundle.cursors.values()
    assert bool(cursor.lanes) == is_by_lane
