"""How much each consumer's turn takes, and where it begins (2.16, 2.17, 2.38, 4.4-4.6, 0.28)."""

from pulsar_spark.transforms.offer import offer_candidates
from pulsar_spark.transforms.round_inputs import TURNS
from pulsar_spark.transforms.turns import READ_BATCH, line_up
from tests.transforms.rows import before_the_offer, held, limits, pending, turns, unread


def lined_up(spark, *rows: dict) -> list[tuple]:
    """Consumer, first entry and the one behind its last, of each turn in line."""
    found = line_up(offer_candidates(before_the_offer(spark, *rows)))
    in_line = found.where(f"axis = {TURNS} AND consumer_id IS NOT NULL").orderBy("cursor", "first")
    return [(row["consumer_id"], row["from_entry"], row["to_entry"]) for row in in_line.collect()]


def test_a_fair_share_each_then_what_is_left_of_each_ones_permits(spark):
    assert lined_up(spark, limits(1, permits=70), *turns(1, a=60, b=10), unread(1, 0, 99)) == [
        ("a", 0, 35),
        ("b", 35, 45),
        ("a", 45, 70),
        ("b", 70, 70),
    ]


def test_permits_count_messages_and_no_entry_is_split(spark):
    """By the largest entry that permits reach: one goes out as long as there are any left, and none for none."""
    rows = [limits(1, permits=12), *turns(1, a=11, b=1, c=0), unread(1, 0, 1), unread(1, 2, 9, batch_size=5)]
    assert lined_up(spark, *rows) == [("a", 0, 3), ("b", 3, 4), ("c", 4, 4), ("a", 4, 4), ("b", 4, 4), ("c", 4, 4)]


def test_the_active_consumer_takes_as_many_entries_as_permits_up_to_one_read(spark):
    one, other = turns(1, a=150)[0], turns(2, a=50)[0]
    found = lined_up(
        spark,
        limits(1, is_single_active=True, permits=150),
        one,
        unread(1, 0, 999, batch_size=10),
        limits(2, is_single_active=True, permits=50),
        other,
        unread(2, 0, 999, batch_size=10),
    )
    assert found == [("a", 0, READ_BATCH), ("a", 0, 50)]


def test_limits_hold_back(spark):
    """A consumer's makes its turn narrower, a subscription's ends the offer of what is unread."""
    narrow = [row | dict(limit=5) for row in turns(1, a=9)]
    found = lined_up(
        spark,
        limits(1, permits=9),
        *narrow,
        pending(1, 0, 1),
        unread(1, 2, 30),
        limits(2, permits=9, limit=3),
        *turns(2, a=9),
        pending(2, 0, 0),
        held(2, 1, 3, "replay"),
        unread(2, 4, 30),
    )
    assert found[::2] == [("a", 0, 3), ("a", 0, 5)]
