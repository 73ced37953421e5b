"""What became of consumers and of the cursor: permits, messages given, who is blocked by them (2.16, 4.4, 4.5)."""

from pulsar_spark.transforms.account import count_given, take_account
from pulsar_spark.transforms.round_inputs import RESULT

FACT = "struct<consumer_id string, permits long, is_blocked boolean, limit long, out long>"
DEALT = (
    f"cursor int, fact {FACT}, first long, last long, status string, consumer_id string, delivery_round long, "
    "redelivery_count int, due_time long, ack_set array<long>, batch_size int, given long, given_again long"
)


def given(first: int, last: int, consumer_id: str, messages: int, again: int = 0) -> tuple:
    entry = (first, last, "pending", consumer_id, 7, 0, None, None, 1)
    return (1, None, *entry, messages, again)


def fact(consumer_id: str | None, permits: int | None, out: int, *, limit: int = 0, is_blocked: bool = False) -> tuple:
    return (1, (consumer_id, permits, is_blocked, limit, out), *[None] * 9, 0, 0)


def test_permits_are_taken_for_messages_and_limits_are_reached_by_them(spark):
    rows = [
        given(0, 1, "a", 2),
        given(2, 2, "a", 5, 5),
        given(3, 3, "b", 1, 1),
        fact("a", 4, 0, limit=7),
        fact("b", 9, 3, limit=5),
        fact("c", 2, 1, is_blocked=True),
        fact(None, None, 4, limit=12),
    ]
    result = take_account(count_given(spark.createDataFrame(rows, DEALT)))
    assert result.columns == RESULT.names
    told = result.where("kind <> 'range'").collect()
    assert {
        row["consumer_id"]: tuple(row[name] for name in ("kind", "permits", "is_blocked", "delivered", "redelivered"))
        for row in told
    } == {
        "a": ("consumer", -3, True, 7, 5),
        "b": ("consumer", 8, False, 1, 1),
        "c": ("consumer", 2, True, 0, 0),
        None: ("cursor", None, True, 8, 6),
    }
    ranges = result.where("kind = 'range'").orderBy("first").collect()
    assert [(row["first"], row["last"], row["consumer_id"], row["permits"]) for row in ranges] == [
        (0, 1, "a", None),
        (2, 2, "a", None),
        (3, 3, "b", None),
    ]
