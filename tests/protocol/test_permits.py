"""Whatever comes, is taken and is given back: no permit is lost or made, and no consumer is left without."""

import random

import pytest

from pulsar_spark.protocol.subscriptions.permits import IDLE_LOOKS, Permits


@pytest.mark.parametrize("seed", range(50))
def test_what_is_asked_for_and_what_waits_are_a_queue_full(seed):
    chance = random.Random(seed)
    least = chance.choice([1, 2, 3, 10, 1000])
    permits = Permits(least, chance.choice([0, 4 * least, 25 * least]))
    asked, queued = permits.connect(), 0
    for round_number in range(200):
        happens = chance.choice(("arrive", "arrive", "take", "take", "watch", "drop"))
        if happens == "arrive" and asked:
            brought = chance.choice([asked, chance.randint(1, asked)])
            asked += permits.arrive(brought, round_number=round_number, queued=queued) - brought
            queued += brought
        elif happens == "take" and queued:
            taken = chance.choice([queued, chance.randint(1, queued)])
            asked += sum(permits.hand_out(is_shown=True) for _ in range(taken))
            queued -= taken
        elif happens == "watch":
            too_many = permits.too_many(queued)
            given_back = min(queued, chance.choice([too_many // 2, too_many, too_many + chance.randint(0, least)]))
            asked += permits.give_back(given_back)
            queued -= given_back
        elif happens == "drop":
            asked, queued = asked + permits.drop(queued), 0
        left, too_large = permits._used, permits._debt
        assert asked + queued + left == permits.queue_size + too_large
        assert asked + queued > 0


def test_a_queue_that_waits_for_slow_rounds_stays_large():
    permits = Permits(1000, 16_000)
    permits.connect()
    for round_number in range(1, 12):
        brought = permits.queue_size
        permits.arrive(brought, round_number=round_number, queued=0)
        assert permits.too_many(brought) == 0  # the round came just before the look
        permits.take(brought)
        assert [permits.too_many(0) for _ in range(3)] == [0, 0, 0]
    assert permits.queue_size == 16_000


def test_a_large_queue_shrinks_where_little_is_taken_and_where_nothing_comes_any_more():
    for looks in ([5000, 5000], [0] * IDLE_LOOKS):
        permits = Permits(1000, 16_000)
        permits.connect()
        permits.queue_size = 16_000
        *before, last = [permits.too_many(queued) for queued in looks]
        assert (set(before), last, permits.queue_size) == ({0}, 15_000, 1000)
