"""Giving back the tail of what was sent: what a round delivered from a place on, and all that later rounds did."""

import pytest

from tests.broker.test_key_shared_dues import ON, TOPIC, join, keys


def state(engine) -> tuple[dict[int, str], dict[int, int]]:
    """Who holds which position, and the redelivery counts of those that wait to come again."""
    found = engine.state(TOPIC, -1, "s")
    return {at: held[0] for at, held in found["pending"].items()}, found["replay"]


def test_what_comes_later_goes_with_it_and_nothing_else(engine):
    """Not what the consumer was sent before, nor what others have; uncounted, and in order."""
    mine, others = keys(True), keys(False)
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 2), ON.flow("b", 9)], 0)
    engine.publish(TOPIC, -1, [1] * 8, keys=[key for pair in zip(mine[:4], others[:4]) for key in pair])
    engine.round([], 0)
    engine.round([ON.flow("a", 1)], 0)
    second = engine.rounds.bundle.round
    engine.round([ON.flow("a", 1)], 0)
    b = {1: "b", 3: "b", 5: "b", 7: "b"}
    assert state(engine) == (b | dict.fromkeys((0, 2, 4, 6), "a"), {})
    engine.round([ON.give_back_since("a", second)], 0)
    assert state(engine) == (b | dict.fromkeys((0, 2), "a"), {4: 0, 6: 0})
    engine.round([ON.give_back_since("a", second - 1, 1), ON.flow("a", 9)], 0)
    assert state(engine) == (b | dict.fromkeys((0, 2, 4, 6), "a"), {}), "2 too, which was the round's last"
    again = {at: held[1] for at, held in engine.state(TOPIC, -1, "s")["pending"].items()}
    assert set(again.values()) == {0}


def test_of_shared_too(engine):
    engine.round([ON.subscribe("a", "Shared"), ON.flow("a", 3)], 0)
    engine.publish(TOPIC, -1, [1] * 6)
    engine.round([], 0)
    first = engine.rounds.bundle.round
    engine.round([ON.flow("a", 2)], 0)
    engine.round([ON.give_back_since("a", first, 2)], 0)
    assert state(engine) == ({0: "a", 1: "a"}, {2: 0, 3: 0, 4: 0})


def test_of_what_came_due(engine):
    """Its places are behind all positions, and so it goes with what lies before it."""
    mine = keys(True)
    engine.round([join("a", "0-65535"), ON.flow("a", 4)], 0)
    engine.publish(TOPIC, -1, [1] * 4, keys=mine[:4], deliver_at_ms=[3000, None, None, 2000])
    engine.round([], 0)
    first = engine.rounds.bundle.round
    engine.round([], 4000)
    assert set(state(engine)[0]) == {0, 1, 2, 3}
    engine.round([ON.give_back_since("a", first + 1)], 4000)
    assert set(state(engine)[0]) == {1, 2} and set(state(engine)[1]) == {0, 3}
    engine.round([ON.give_back_since("a", first, 2), ON.flow("a", 9)], 4000)
    assert set(state(engine)[0]) == {0, 1, 2, 3}


@pytest.mark.parametrize("how", ["unseen", "in part", "tail", "come due"])
@pytest.mark.parametrize("lane", [0, 1])
def test_what_comes_back_waits_for_earlier_ones_of_its_key(engine, how, lane):
    """Those came back before, and permits suffice for entries of another lane of their owner alone: 37 and 39 go, 40
    waits, and 42, which comes back in this round, waits behind 40."""
    halves = [("a", keys(True)[0]), ("b", keys(False)[0])]
    (_, key), (other, other_key) = halves[lane], halves[1 - lane]
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 99), ON.flow("b", 99)], 0)
    engine.publish(TOPIC, -1, [1] * 42 + [2], keys=[(key, other_key)[at % 2] for at in range(42)] + [key * 2])
    engine.round([], 0)
    engine.round([ON.ack(at, consumer=other) for at in range(1, 37, 2)], 0)  # so that the lanes stay two
    engine.round([ON.close("a"), ON.close("b"), join("c", "0-65535"), ON.flow("c", 26)], 0)
    sent = engine.rounds.bundle.round
    assert set(state(engine)[0]) == {*range(0, 37, 2), *range(37, 43)}
    due = [ON.negative_ack("c", 42, delay_ms=1000)] if how == "come due" else []
    engine.round([*(ON.negative_ack("c", at, is_unseen=True) for at in (37, 39, 40)), *due], 0)
    assert set(state(engine)[1]) == {37, 39, 40}
    requests = {
        "unseen": [ON.negative_ack("c", 42, is_unseen=True)],
        "in part": [ON.ack(42, ack_set=[2], consumer="c"), ON.negative_ack("c", 42)],
        "tail": [ON.give_back_since("c", sent, 42)],
        "come due": [],
    }[how]
    dealt = engine.round([ON.flow("c", 2), *requests], 1000)["deliveries"]
    assert [each.position for each in dealt] == [37, 39] and set(state(engine)[1]) == {40, 42}
    dealt = engine.round([ON.flow("c", 3)], 1000)["deliveries"]
    assert [each.position for each in dealt] == [40, 42] and state(engine)[1] == {}


def test_a_number_that_is_none_changes_nothing(engine):
    engine.round([join("a", "0-65535"), ON.flow("a", 9)], 0)
    engine.publish(TOPIC, -1, [1] * 2, keys=keys(True)[:2])
    engine.round([], 0)
    ill = ON.give_back_since("a", 0) | {"properties": {"since_round": "-1"}}
    engine.round([ill], 0)
    assert state(engine) == ({0: "a", 1: "a"}, {})
