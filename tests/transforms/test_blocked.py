"""Who has too much unacknowledged: consumers (4.4) and subscriptions (4.5)."""

import pytest

from pulsar_spark.transforms.round_inputs import FACTS
from tests.transforms.rows import ack, before_the_offer, limits, pending, turns


def blocked(spark, *rows: dict) -> dict[int, tuple[bool, bool]]:
    """Of each cursor: whether its consumer is, and whether the cursor is."""
    found = before_the_offer(spark, *rows)
    facts = found.where(f"axis = {FACTS}").collect()
    of = {(row["cursor"], row["consumer_id"] is None): row["is_blocked"] for row in facts}
    return {cursor: (of[cursor, False], of[cursor, True]) for cursor, is_whole in of if is_whole}


def limited(number: int, out: int, *, limit: int, was_blocked: bool, elsewhere: int = 0, acked: int = 0) -> list[dict]:
    """A cursor and its one consumer with the same *limit*, and so many messages *out*, of which some are acknowledged
    in this round; more lie *elsewhere*."""
    same = dict(limit=limit, unacked_elsewhere=elsewhere, is_blocked=was_blocked)
    first, *others = (row | same for row in turns(number, a=9))
    acks = [ack(number, 0, acked - 1)] if acked else []
    return [limits(number, **same), first, *others, pending(number, 0, out - 1), *acks]


def test_at_the_limit_and_till_half_of_it(spark):
    """A consumer is free again at half its limit, a subscription below it; what is acknowledged in the same round
    counts no more, what other rounds' cursors hold does."""
    found = blocked(
        spark,
        *limited(1, 3, limit=4, was_blocked=False),
        *limited(2, 4, limit=4, was_blocked=False),
        *limited(3, 3, limit=4, was_blocked=True),
        *limited(4, 2, limit=4, was_blocked=True),
        *limited(5, 1, limit=4, was_blocked=True),
        *limited(6, 4, limit=4, was_blocked=False, acked=1),
        *limited(7, 3, limit=4, was_blocked=False, elsewhere=1),
        *limited(8, 3, limit=0, was_blocked=True),
    )
    assert found == {
        1: (False, False),
        2: (True, True),
        3: (True, True),
        4: (False, True),
        5: (False, False),
        6: (False, False),
        7: (True, True),
        8: (False, False),
    }


@pytest.mark.parametrize("words, is_full", [([0b111], True), ([0b011], False)])
def test_messages_count_not_entries(spark, words, is_full):
    """Of a batch those that are not acknowledged yet."""
    rows = limited(1, 1, limit=3, was_blocked=False)
    rows[-1] |= dict(batch_size=3, ack_set=words)
    assert blocked(spark, *rows) == {1: (is_full, is_full)}
