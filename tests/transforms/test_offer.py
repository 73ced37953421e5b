"""What is on offer, and in which order (2.6, 2.14-2.18, 0.21)."""

from pulsar_spark.transforms.offer import offer_candidates
from pulsar_spark.transforms.round_inputs import ENTRIES
from tests.transforms.rows import NOW, before_the_offer, held, limits, pending, unread


def offered(spark, *rows: dict) -> list[tuple]:
    """First position, entries and entries before them, of each line, in order."""
    found = offer_candidates(before_the_offer(spark, *rows))
    ordered = found.where(f"axis = {ENTRIES} AND offered > 0").orderBy("line", "before")
    return [(row["line"], row["first"], row["offered"], row["before"]) for row in ordered.collect()]


def test_what_came_back_then_what_came_due_then_what_is_unread(spark):
    assert offered(
        spark,
        limits(1),
        unread(1, 20, 29),
        held(1, 4, 5, "replay"),
        held(1, 8, 8, "replay"),
        held(1, 9, 9, "replay", due_time=NOW + 1),
        pending(1, 10, 12),
        unread(1, 101, 102, due_time=NOW),
        held(1, 107, 107, "replay", due_time=NOW - 1),
        unread(1, 109, 109, due_time=NOW + 1),
    ) == [(None, 4, 2, 0), (None, 8, 1, 2), (None, 107, 1, 3), (None, 101, 2, 4), (None, 20, 10, 6)]


def test_on_exclusive_position_decides_alone(spark):
    assert offered(
        spark,
        limits(1, is_single_active=True),
        unread(1, 0, 2),
        held(1, 3, 3, "replay", due_time=NOW + 1),
        unread(1, 4, 5, due_time=NOW + 1),
    ) == [(None, 0, 3, 0), (None, 3, 1, 3), (None, 4, 2, 4)]


def test_each_line_begins_at_zero_and_what_is_held_is_in_none(spark):
    assert offered(
        spark,
        limits(1),
        unread(1, 0, 4, line="a"),
        unread(1, 5, 6, line="b"),
        unread(1, 7, 9, line="a", is_held=True),
        unread(1, 10, 10, line="a"),
        held(1, 11, 11, "replay", line="b"),
    ) == [("a", 0, 5, 0), ("a", 10, 1, 5), ("b", 11, 1, 0), ("b", 5, 2, 1)]
