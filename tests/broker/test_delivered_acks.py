"""Acknowledging what a round delivered: only what it gave to that consumer and what is still there."""

from pulsar_spark.protocol.acknowledgement.cursor import DELIVERY_ROUND
from tests.broker.test_key_shared_dues import ON, TOPIC, join, keys


def delivered_ack(consumer: str, first: int, last: int, round_number: int) -> dict:
    return ON.ack(first, last, consumer=consumer) | {"properties": {DELIVERY_ROUND: str(round_number)}}


def state(engine) -> tuple[int, dict[int, str]]:
    """Mark-delete, and who holds which position."""
    found = engine.state(TOPIC, -1, "s")
    return found["mark_delete_position"], {at: held[0] for at, held in found["pending"].items()}


def test_of_a_delivery_only_what_is_still_there_is_acknowledged(engine):
    mine, others = keys(True), keys(False)
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 3), ON.flow("b", 9)], 0)
    engine.publish(TOPIC, -1, [1] * 8, keys=[key for pair in zip(mine[:4], others[:4]) for key in pair])
    engine.round([], 0)
    first = engine.rounds.bundle.round
    assert state(engine) == (-1, {0: "a", 2: "a", 4: "a", 1: "b", 3: "b", 5: "b", 7: "b"})
    engine.round([ON.negative_ack("a", 2), ON.flow("a", 9)], 0)
    again = engine.rounds.bundle.round
    assert state(engine)[1] == {0: "a", 2: "a", 4: "a", 6: "a", 1: "b", 3: "b", 5: "b", 7: "b"}
    engine.round([delivered_ack("a", 0, 7, first)], 0)
    assert state(engine) == (0, {2: "a", 6: "a", 1: "b", 3: "b", 5: "b", 7: "b"}), "2 came again, 6 came later"
    engine.round([delivered_ack("a", 0, 7, first), delivered_ack("b", 0, 3, again)], 0)
    assert state(engine) == (0, {2: "a", 6: "a", 1: "b", 3: "b", 5: "b", 7: "b"}), "nothing is left of these"
    engine.round([delivered_ack("b", 0, 3, first), delivered_ack("a", 2, 7, again)], 0)
    assert state(engine) == (4, {5: "b", 7: "b"})


def test_who_acknowledges_and_leaves_at_once_has_acknowledged(engine):
    mine = keys(True)
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 3)], 0)
    engine.publish(TOPIC, -1, [1] * 4, keys=mine[:4])
    engine.round([], 0)
    engine.round([delivered_ack("a", 0, 1, engine.rounds.bundle.round), ON.close("a")], 0)
    assert state(engine) == (1, {})
