"""Cursors of which nothing is asked and nothing is due are looked at by no round and no look."""

import pytest

from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.cursors.cursors import FEW, Cursors
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.gathering import candidates, gather
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from tests.support.model_keys import Key
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC, OTHER = (f"persistent://public/default/{name}" for name in ("t", "other"))
MANY = 50


@pytest.fixture
def engine(tmp_path):
    """Many subscriptions of a topic, each with a consumer, the first of which can take entries; one of another."""
    engine = new_engine(None, tmp_path)
    for topic in (TOPIC, OTHER):
        engine.create_topic(topic)
    engine.round([on(number).subscribe("A", client="c") for number in range(MANY)] + [On(OTHER).subscribe("B")], 0)
    engine.round([on(0).flow("A", 1000), On(OTHER).flow("B", 1000)], 1)
    engine.run([], 2)
    return engine


def on(number: int) -> On:
    return On(TOPIC, -1, f"s{number}")


def awake(engine) -> list[tuple[str, str]]:
    return [(cursor.topic, cursor.key.subscription) for cursor in engine.rounds.bundle.cursors.awake()]


@pytest.fixture
def looked(monkeypatch) -> list[str]:
    """Whose turn it was, in rounds and between them."""
    looked, takers_of = [], candidates.takers_of
    for module in (candidates, gather):
        monkeypatch.setattr(
            module, "takers_of", lambda cursor, now: looked.append(cursor.topic) or takers_of(cursor, now)
        )
    return looked


def test_a_round_looks_at_who_could_take_what_came_and_a_look_at_nobody(engine, looked):
    assert not engine.rounds.is_due() and not engine.rounds.has_work() and looked == [] == awake(engine)
    engine.publish(TOPIC, -1, [1])
    assert len(engine.round([], 10)["deliveries"]) == 1
    assert looked == [TOPIC], "of one subscription out of many, and no other topic's"
    engine.run([], 11)
    assert awake(engine) == []


def test_who_is_asked_for_something_is_looked_at_again(engine):
    engine.publish(TOPIC, -1, [1])
    engine.round([], 10)
    deliveries = engine.round([on(7).flow("A", 3)], 12)["deliveries"]
    assert [(each.consumer_id, each.position) for each in deliveries] == [("A", 0)]


def test_what_is_due_wakes_by_the_clock_it_is_due_by(engine):
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([], 10)
    engine.round([on(0).negative_ack("A", 0, delay_ms=20_000)], 20)
    engine.run([], 21)
    assert awake(engine) == [] and not engine.rounds.is_due()
    engine.now_ms = 20_019
    assert not engine.rounds.is_due()
    engine.now_ms = 20_020
    assert engine.rounds.is_due()
    assert [(each.position, each.redelivery_count) for each in engine.round([], 20_021)["deliveries"]] == [(0, 1)]


def test_a_policy_and_a_clock_that_is_set_back_wake_everybody(engine, looked):
    engine.run([On(TOPIC).policy("max_unacked_messages_per_consumer", 5)], 10)
    engine.run([], 11)
    assert awake(engine) == []
    engine.rounds.bundle.set_policy(TOPIC, "max_unacked_messages_per_consumer", "7")
    assert len(awake(engine)) == MANY + 1
    engine.run([], 20_000)
    assert awake(engine) == []
    looked.clear()
    engine.run([], 1000)
    assert len(looked) == MANY + 1


def test_a_broker_that_starts_looks_once(engine, looked):
    engine.restart(10)
    assert len(awake(engine)) == MANY + 1
    engine.rounds.is_due()
    assert len(looked) == MANY + 1 and awake(engine) == []
    engine.rounds.is_due()
    assert len(looked) == MANY + 1
    engine.publish(TOPIC, -1, [1])
    assert engine.rounds.bundle.has_news()
    assert len(engine.round([], 11)["deliveries"]) == 1


def test_one_of_key_shared_rests_too(engine):
    keyed = On(TOPIC, -1, "keyed")
    engine.round([keyed.subscribe("K", "KeyShared"), keyed.flow("K", 100)], 10)
    engine.publish(TOPIC, -1, [1, 1, 1], keys=[(Key("x"),), (Key("y"),), (Key("x"),)])
    engine.round([], 11)
    (cursor,) = (cursor for key, cursor in engine.rounds.bundle.cursors.items() if key.subscription == "keyed")
    assert cursor.entries is not None
    engine.run([], 12)
    assert not engine.rounds.is_due() and awake(engine) == []
    engine.round([keyed.negative_ack("K", 0, delay_ms=500)], 20)
    engine.run([], 21)
    assert awake(engine) == [] and not engine.rounds.is_due()
    engine.now_ms = 520
    assert engine.rounds.is_due()
    assert [(each.position, each.redelivery_count) for each in engine.round([], 521)["deliveries"]] == [(0, 1)]
    engine.run([], 522)
    engine.publish(TOPIC, -1, [1], keys=[(Key("y"),)])
    assert [each.position for each in engine.round([], 523)["deliveries"] if each.subscription == "keyed"] == [3]


def test_subscriptions_that_are_deleted_are_forgotten_in_every_way(engine):
    engine.round([on(number).unsubscribe(force=True) for number in range(MANY)], 10)
    cursors = engine.rounds.bundle.cursors
    assert len(cursors) == 1 and cursors.of_topic(engine.topic_ids[TOPIC]) == []
    cursors.wake_all()
    assert awake(engine) == [(OTHER, "s")]


def test_heaps_hold_what_rests_now_and_little_else():
    cursors, keys = Cursors(), [CursorKey("t", -1, str(number)) for number in range(10)]
    for key in keys:
        cursors[key] = Cursor(key, TOPIC, -1, 0)
    for lap in range(1000):
        for key in keys:
            cursors.rest(cursors[key], 10**9 + lap, 10**6 + lap, waits_for_entries=False)
        cursors.wake(keys)
    for key in keys[:2]:
        cursors.rest(cursors[key], 7, None, waits_for_entries=True)
    assert max(map(len, cursors._dues)) <= FEW + 2 * len(keys) + 2 and cursors.next_due() == (7, None)
    cursors.wake_due(Instant(6, 10**7))
    assert [cursor.key for cursor in cursors.awake()] == keys[2:]
    cursors.wake_due(Instant(7, 0))
    assert [cursor.key for cursor in cursors.awake()] == keys and cursors.next_due() == (None, None)
