"""What comes back, counted or not, and what dies of it (2.12, 4.14-4.21, 4.26)."""

from chispa import assert_df_equality

from tests.transforms.rows import (
    ENTRIES,
    NOW,
    ack,
    entries,
    entries_of,
    held,
    inputs,
    limits,
    pending,
    returned,
    returns_applied,
    unread,
)


def given_back(spark, *rows: dict):
    return entries_of(returns_applied(inputs(spark, *rows)))


def test_who_holds_what_is_given_back_decides_and_when(spark):
    """A return of what is out at another consumer, waits already or is acknowledged in the same round says nothing."""
    found = given_back(
        spark,
        limits(1),
        pending(1, 0, 3),
        pending(1, 4, 5, "b"),
        held(1, 6, 6, "replay", redelivery_count=1),
        returned(1, 0, 1, "a", NOW),
        returned(1, 2, 2, "a", NOW + 1),
        returned(1, 4, 4, "a", NOW),
        returned(1, 6, 6, "a", NOW),
        ack(1, 1, 1),
        limits(2),
        pending(2, 0, 0, due_time=NOW, redelivery_count=4),
        pending(2, 1, 1, due_time=NOW + 1, redelivery_count=4),
    )
    expected = spark.createDataFrame(
        [
            entries(1, 0, 0, "replay", count=1),
            entries(1, 1, 1, "acknowledged", count=None, batch_size=None),
            entries(1, 2, 2, "pending", "a", due=NOW + 1),
            entries(1, 3, 3, "pending", "a"),
            entries(1, 4, 4, "pending", "b"),
            entries(1, 5, 5, "pending", "b"),
            entries(1, 6, 6, "replay", count=1),
            entries(2, 0, 0, "replay", count=5),
            entries(2, 1, 1, "pending", "a", 4, NOW + 1),
        ],
        ENTRIES,
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def test_leaving_is_not_counted_and_asking_for_everything_is(spark):
    found = given_back(
        spark,
        limits(1, left=["a"], redelivered=["b"]),
        pending(1, 0, 1, "a", redelivery_count=2),
        pending(1, 2, 3, "b", redelivery_count=2),
        pending(1, 4, 5, "c", redelivery_count=2),
    )
    expected = spark.createDataFrame(
        [entries(1, 0, 1, "replay", count=2), entries(1, 2, 3, "replay", count=3), entries(1, 4, 5, "pending", "c", 2)],
        ENTRIES,
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def test_what_would_come_back_too_often_is_dead_and_keeps_its_holder(spark):
    found = given_back(
        spark,
        limits(1, max_redeliver_count=2, redelivered=["a"], left=["b"]),
        pending(1, 0, 0, redelivery_count=1),
        pending(1, 1, 1, redelivery_count=2),
        pending(1, 2, 2, "b", redelivery_count=2),
    )
    expected = spark.createDataFrame(
        [entries(1, 0, 0, "replay", count=2), entries(1, 1, 1, "dead", "a", 3), entries(1, 2, 2, "replay", count=2)],
        ENTRIES,
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def test_what_is_given_back_unseen_is_not_counted_and_does_not_die(spark):
    """Unless its consumer asks for all it holds. Where one is active the others come along."""
    found = given_back(
        spark,
        limits(1, max_redeliver_count=1, redelivered=["b"]),
        pending(1, 0, 1, redelivery_count=1),
        pending(1, 2, 2, "b"),
        returned(1, 0, 0, "a", NOW, is_unseen=True),
        returned(1, 1, 1, "b", NOW, is_unseen=True),
        returned(1, 2, 2, "b", NOW, is_unseen=True),
        limits(2, is_single_active=True),
        pending(2, 0, 1),
        returned(2, 1, 1, "a", NOW, is_unseen=True),
    )
    expected = spark.createDataFrame(
        [
            entries(1, 0, 0, "replay", count=1),
            entries(1, 1, 1, "pending", "a", count=1),
            entries(1, 2, 2, "replay", count=1),
            entries(2, 0, 0, "replay"),
            entries(2, 1, 1, "replay"),
        ],
        ENTRIES,
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def test_where_one_is_active_a_counted_return_brings_everything_back(spark):
    """Counted is only what was named; what falls due later comes along now. Without one, nothing comes along."""
    found = given_back(
        spark,
        limits(1, is_single_active=True),
        pending(1, 0, 3, redelivery_count=1),
        returned(1, 1, 1, "a", NOW),
        returned(1, 2, 2, "a", NOW + 5),
        limits(2, is_single_active=True),
        pending(2, 0, 1),
        returned(2, 0, 0, "a", NOW + 5),
    )
    expected = spark.createDataFrame(
        [
            entries(1, 0, 0, "replay", count=1),
            entries(1, 1, 1, "replay", count=2),
            entries(1, 2, 2, "replay", count=1),
            entries(1, 3, 3, "replay", count=1),
            entries(2, 0, 0, "pending", "a", due=NOW + 5),
            entries(2, 1, 1, "pending", "a"),
        ],
        ENTRIES,
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def test_what_is_met_before_its_deliver_time_waits_by_the_machine_s_clock(spark):
    """On Shared and Key_Shared, there whether its hash is held or not; on Exclusive and Failover it does not (2.6)."""
    found = given_back(
        spark,
        limits(1, wall=500),
        unread(1, 0, 0, due_time=500),
        unread(1, 1, 1, due_time=501),
        unread(1, 2, 2),
        limits(2, is_single_active=True, wall=500),
        unread(2, 0, 0, due_time=501),
        limits(3, wall=500),
        unread(3, 0, 0, due_time=501, line="a"),
        unread(3, 1, 1, due_time=501, is_held=True),
        unread(3, 2, 2, due_time=500, line="a", is_held=True),
    )
    expected = spark.createDataFrame(
        [
            entries(1, 0, 0, "unread", due=500),
            entries(1, 1, 1, "replay", due=501),
            entries(1, 2, 2, "unread"),
            entries(2, 0, 0, "unread", due=501),
            entries(3, 0, 0, "replay", due=501),
            entries(3, 1, 1, "replay", due=501),
            entries(3, 2, 2, "unread", due=500),
        ],
        ENTRIES,
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)
