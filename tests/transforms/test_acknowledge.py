"""Acknowledgements fold into ranges, wherever they meet an entry (3.11-3.20)."""

from chispa import assert_df_equality

from pulsar_spark.transforms.acknowledge import apply_acknowledgements
from tests.transforms.rows import (
    ENTRIES,
    ack,
    entries,
    entries_of,
    held,
    inputs,
    left_of_batch,
    limits,
    pending,
    unread,
)

DONE = ("acknowledged", None, None, None, None, None)
"""Nothing else is known of what is acknowledged."""


def test_what_is_acknowledged_and_what_stays(spark):
    """
    position           0  1  2  3  4  5  6  7  8  9
    1 pending at a     p  p  p  p  p           u  u  unread
      acknowledged        x  x        x  x     x        also what nobody holds, or has met
    2 given back       r  r  r
      acknowledged     x
    """
    folded = apply_acknowledgements(
        inputs(
            spark,
            limits(1),
            pending(1, 0, 4, redelivery_count=2, due_time=5),
            unread(1, 8, 9),
            ack(1, 1, 2),
            ack(1, 5, 6),
            ack(1, 8, 8),
            limits(2),
            held(2, 0, 2, "replay", redelivery_count=1),
            ack(2, 0, 0),
        )
    )
    expected = spark.createDataFrame(
        [
            entries(1, 0, 0, "pending", "a", 2, 5),
            entries(1, 1, 2, *DONE),
            entries(1, 3, 4, "pending", "a", 2, 5),
            entries(1, 5, 6, *DONE),
            entries(1, 8, 8, *DONE),
            entries(1, 9, 9, "unread"),
            entries(2, 0, 0, *DONE),
            entries(2, 1, 2, "replay", count=1),
        ],
        ENTRIES,
    )
    assert_df_equality(entries_of(folded), expected, ignore_row_order=True, ignore_nullable=True)


def test_a_batch_keeps_what_is_left_of_it(spark):
    """Pending it stays pending, unread it waits to be delivered, with nothing left it is acknowledged; an entry that
    is acknowledged already stays so. The count stays while anything is left (0.20)."""
    folded = apply_acknowledgements(
        inputs(
            spark,
            limits(1),
            pending(1, 0, 3, batch_size=4, redelivery_count=3),
            unread(1, 4, 6, batch_size=4),
            held(1, 7, 7, "acknowledged", batch_size=None, redelivery_count=None),
            left_of_batch(1, 1, 0b0101),
            left_of_batch(1, 2),
            left_of_batch(1, 5, 0b1000),
            left_of_batch(1, 7, 0b1000),
        )
    )
    expected = spark.createDataFrame(
        [
            entries(1, 0, 0, "pending", "a", 3, batch_size=4),
            entries(1, 1, 1, "pending", "a", 3, ack_set=[0b0101], batch_size=4),
            entries(1, 2, 2, *DONE),
            entries(1, 3, 3, "pending", "a", 3, batch_size=4),
            entries(1, 4, 4, "unread", batch_size=4),
            entries(1, 5, 5, "replay", ack_set=[0b1000], batch_size=4),
            entries(1, 6, 6, "unread", batch_size=4),
            entries(1, 7, 7, *DONE),
        ],
        ENTRIES,
    )
    assert_df_equality(entries_of(folded), expected, ignore_row_order=True, ignore_nullable=True)
