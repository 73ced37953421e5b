"""Redelivery backoff: golden m1."""

import pytest

from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
from tests.protocol.golden import cases


@pytest.mark.parametrize(
    "case", cases("m1_redelivery_backoff"), ids=lambda case: f"{case['input']['min_ms']}x{case['input']['multiplier']}"
)
def test_waits_grow_as_pulsar_s(case):
    given, expected = case["input"], case["expected"]["delays_ms"]
    backoff = MultiplierRedeliveryBackoff(given["min_ms"], given["max_ms"], given["multiplier"])
    first = given["redelivery_counts_from"]
    assert [backoff.delay_ms(count) for count in range(first, first + len(expected))] == expected


def test_counts_beyond_what_a_power_can_hold():
    assert MultiplierRedeliveryBackoff(1, 7, 3.5).delay_ms(1_000_000) == 7
    assert MultiplierRedeliveryBackoff(5, 10**15, 1).delay_ms(1_000_000) == 5
    assert MultiplierRedeliveryBackoff(0, 0).delay_ms(1_000_000) == 0


@pytest.mark.parametrize("given", [(-1, 5, 2), (6, 5, 2), (1, 5, 0.9), (1, 5, float("nan")), (1, 5, float("inf"))])
def test_waits_that_cannot_be(given):
    with pytest.raises(ValueError):
        MultiplierRedeliveryBackoff(*given)
