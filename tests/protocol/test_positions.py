"""Sets of positions against Python's own sets."""

import random

import pytest

from pulsar_spark.protocol.acknowledgement.positions import Positions


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_set_of_what_was_added(seed):
    dice, expected, found = random.Random(seed), set(), Positions()
    assert not found
    for _ in range(60):
        first = dice.randrange(100)
        last = first + dice.choice([-1, 0, 0, 0, 1, 5])
        expected |= set(range(first, last + 1))
        found.add(first, last)
        ranges = list(found)
        assert [position for first, last in ranges for position in range(first, last + 1)] == sorted(expected)
        assert all(last + 1 < later for (_, last), (later, _) in zip(ranges, ranges[1:])), "ranges that adjoin are one"
        assert [position for position in range(-1, 107) if position in found] == sorted(expected)
        begin, end = sorted(dice.choices(range(107), k=2))
        assert [position for gap in found.gaps(begin, end) for position in range(gap[0], gap[1] + 1)] == sorted(
            set(range(begin, end + 1)) - expected
        )
    assert found
