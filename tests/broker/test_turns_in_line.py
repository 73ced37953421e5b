"""Rounds leave out the turns of consumers that nothing is left for, and come to what rounds with all turns come to."""

import random

import pytest

from pulsar_spark.broker import line_up
from tests.broker.test_key_shared_dues import ON, TOPIC
from tests.broker.test_whole_ranges import KEYS
from tests.spark_engine import cursor_of, new_engine

NAMES = [f"c{number}" for number in range(8)]


def standing(engine) -> tuple:
    """What consumers and the cursor have, entry by entry."""
    cursor = cursor_of(engine)
    return (
        {name: (each.permits, each.is_blocked) for name, each in cursor.consumers.items()},
        cursor.is_blocked,
        cursor.unacked,
        list(cursor.ranges()),
        cursor.read_position,
    )


def drawn(chosen: random.Random, engine) -> list[dict]:
    """What consumers ask in a round, of what they hold."""
    found = [ON.flow(name, chosen.choice([1, 3, 40])) for name in NAMES if chosen.random() < 0.3]
    for held in cursor_of(engine).ranges():
        if held.status == "pending" and chosen.random() < 0.5:
            ask = chosen.choice(
                [
                    lambda: ON.ack(held.first, held.last, consumer=held.consumer_id),
                    lambda: ON.negative_ack(held.consumer_id, held.first),
                ]
            )
            found.append(ask())
    return found


@pytest.mark.parametrize("kind", ["Shared", "KeyShared"])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_without_turns_that_give_nothing_come_to_the_same(tmp_path, monkeypatch, seed, kind):
    chosen, short = random.Random(seed), line_up.in_reach
    ways = (short, lambda line, entries, takes_some: list(line))
    engines = [new_engine(None, tmp_path / name) for name in ("short", "whole")]
    limits = [ON.policy("max_unacked_messages_per_consumer", 6)] if seed % 2 else []
    asked = limits + [ON.subscribe(name, kind, priority_level=number % 2) for number, name in enumerate(NAMES)]
    for engine in engines:
        engine.create_topic(TOPIC)
    for _ in range(15):
        sizes = [chosen.choice([1, 1, 5]) for _ in range(chosen.choice([0, 1, 4]))]
        keys = [(key,) * size for key, size in zip(chosen.choices(KEYS, k=len(sizes)), sizes)]
        for engine, way in zip(engines, ways):
            monkeypatch.setattr(line_up, "in_reach", way)
            engine.publish(TOPIC, -1, sizes, keys=keys)
            engine.round([dict(request) for request in asked], 0)
        assert standing(engines[0]) == standing(engines[1])
        asked = drawn(chosen, engines[0])


def test_of_a_hundred_consumers_one_message_concerns_one(tmp_path, monkeypatch):
    engine, planned = new_engine(None, tmp_path), []
    names = [f"c{number}" for number in range(100)]
    engine.create_topic(TOPIC)
    engine.round([*map(ON.subscribe, names), *(ON.flow(name, 1000) for name in names)], 0)
    run = engine.planner.run
    monkeypatch.setattr(engine.rounds, "plan", lambda work: planned.append(work.rows.num_rows) or run(work))
    engine.publish(TOPIC, -1, [1])
    (delivery,) = engine.round([], 0)["deliveries"]
    assert engine.round([ON.ack(0, consumer=delivery.consumer_id)], 0)["deliveries"] == []
    assert planned == [3, 4], "the cursor, a turn and the entry; the cursor, a turn, the range and the acknowledgement"
