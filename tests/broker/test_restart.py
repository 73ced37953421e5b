"""What a broker that starts knows: everything.

Against semantics 3.22-3.25, where a restart forgets counts, deadlines, permits, parts of batches (0.20, 0.23).
"""

import pytest

from tests.support.requests import On

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def delivered(result: dict) -> list[tuple]:
    return [(each.consumer_id, each.position, each.redelivery_count, each.ack_set) for each in result["deliveries"]]


def test_nothing_is_forgotten(engine):
    engine.publish(TOPIC, -1, [1, 4, 1, 1, 1, 1])
    engine.round([ON.subscribe("A", lease_ms=600_000), ON.flow("A", 99)], 0)
    engine.round(
        [ON.negative_ack("A", 2), ON.ack(1, ack_set=[0b1010]), ON.ack(4), ON.negative_ack("A", 3, delay_ms=60_000)],
        1_000,
    )
    before = engine.state(TOPIC, -1, "s")
    assert (before["acknowledged"], before["ack_sets"]) == ([(4, 4)], {1: (0b1010,)})
    assert (before["pending"][2], before["pending"][3]) == (("A", 1, None), ("A", 0, 61_000))
    engine.restart(2_000)
    engine.round([], 2_000)
    assert engine.state(TOPIC, -1, "s") == before
    assert delivered(engine.round([ON.negative_ack("A", 1, 2)], 3_000)) == [("A", 1, 1, (0b1010,)), ("A", 2, 2, None)]
    assert delivered(engine.round([], 60_999)) == []
    assert delivered(engine.round([], 61_000)) == [("A", 3, 1, None)]


def test_a_part_of_a_batch_acknowledged_alone_is_not_forgotten(engine):
    """Against 3.23, where it is lost in a clean close, and not written down by itself."""
    engine.publish(TOPIC, -1, [3])
    engine.round([ON.subscribe("A"), ON.flow("A", 9)], 0)
    engine.round([ON.ack(0, ack_set=[0b101])], 1_000)
    engine.round([ON.close("A")], 2_000)
    engine.restart(3_000)
    assert delivered(engine.round([ON.subscribe("B"), ON.flow("B", 9)], 3_000)) == [("B", 0, 0, (0b101,))]


def test_counts_outlive_a_restart_with_nobody_there(engine):
    engine.publish(TOPIC, -1, [1])
    engine.round([ON.subscribe("A"), ON.flow("A", 9)], 0)
    engine.round([ON.negative_ack("A", 0)], 1_000)
    engine.round([ON.close("A")], 2_000)
    engine.restart(3_000)
    assert delivered(engine.round([ON.subscribe("B", "Exclusive"), ON.flow("B", 9)], 3_000)) == [("B", 0, 1, None)]


def test_a_new_active_consumer_waits_for_its_second_whoever_is_the_broker(engine):
    """So that acknowledgements of the former one that are on their way are not too late (2.11)."""
    engine.publish(TOPIC, -1, [1, 1])
    engine.round(
        [
            ON.subscribe("A", "Failover"),
            ON.flow("A", 9),
            ON.subscribe("B", "Failover", priority_level=1),
            ON.flow("B", 9),
        ],
        0,
    )
    engine.round([ON.close("A")], 5_000)
    engine.restart(5_500)
    assert delivered(engine.round([ON.ack(0)], 5_999)) == []
    assert delivered(engine.round([], 6_000)) == [("B", 1, 0, None)]


def test_a_client_that_says_nothing_after_a_restart_is_let_go_when_its_lease_is_over(engine):
    """And no sooner: it may not have heard of the restart."""
    engine.publish(TOPIC, -1, [1])
    engine.round([ON.subscribe("A", lease_ms=30_000), ON.flow("A", 9)], 0)
    engine.restart(20_000)
    engine.round([ON.subscribe("B", lease_ms=600_000), ON.flow("B", 9)], 20_000)
    assert delivered(engine.round([], 49_999)) == []
    assert delivered(engine.round([], 50_000)) == [("B", 0, 0, None)]


def test_mark_delete_waits_for_an_entry_that_was_never_delivered(engine):
    """Whatever is acknowledged behind it, and whoever is the broker when it is acknowledged itself."""
    engine.publish(TOPIC, -1, [1, 1, 1, 1])
    engine.round([ON.subscribe("A"), ON.ack(1), ON.ack(3)], 0)
    state = engine.state(TOPIC, -1, "s")
    assert (state["mark_delete_position"], state["acknowledged"]) == (-1, [(1, 1), (3, 3)])
    engine.restart(1_000)
    engine.round([ON.ack(0)], 1_000)
    state = engine.state(TOPIC, -1, "s")
    assert (state["mark_delete_position"], state["acknowledged"]) == (1, [(3, 3)])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_publish_that_is_retried_counts_once_whoever_is_the_broker(engine, is_restarted):
    """Its outcome was unclear to the producer, so it is in the log twice, under one id."""
    engine.publish(TOPIC, -1, [1])
    assert delivered(engine.round([ON.subscribe("A"), ON.flow("A", 9)], 0)) == [("A", 0, 0, None)]
    if is_restarted:
        engine.restart(1_000)
    engine.published -= 1
    engine.publish(TOPIC, -1, [1])
    assert delivered(engine.round([], 1_000)) == []
    engine.publish(TOPIC, -1, [1])
    assert delivered(engine.round([], 2_000)) == [("A", 1, 0, None)]
