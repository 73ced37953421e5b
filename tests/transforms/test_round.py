"""The whole plan, on cursors of one frame: who gets which stretch of the candidates, and what becomes of consumers."""

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.transforms.round import only_acknowledges, plan_acknowledgements, plan_for, plan_round
from pulsar_spark.transforms.round_inputs import RESULT, SCHEMA
from tests.support.group_rows import grouped
from tests.transforms.rows import NOW, ROUND, ack, held, inputs, left_of_batch, limits, pending, returned, turns, unread


def cursor(number: int, *, permits: int, most: int = 0, **columns) -> dict:
    return limits(number, permits=permits, max_redeliver_count=most, read_position=4, **columns)


def alone(number: int, **permits: int) -> list[dict]:
    """Consumers of Key_Shared, each alone in the line of its name."""
    return [
        dict(turns(number, **{name: each})[0], first=place, last=place, line=name)
        for place, (name, each) in enumerate(permits.items())
    ]


def state(
    number: int,
    first: int,
    last: int,
    status: str,
    consumer_id=None,
    delivery_round=None,
    count=None,
    due=None,
    ack_set=None,
    batch_size=None,
) -> tuple:
    return (number, "range", first, last, status, consumer_id, delivery_round, count, due, ack_set, batch_size) + (
        (None,) * 4
    )


def given(
    number: int, first: int, last: int, consumer_id: str, count: int = 0, batch_size: int = 1, ack_set=None
) -> tuple:
    return state(number, first, last, "pending", consumer_id, ROUND, count, None, ack_set, batch_size)


def consumer(number: int, consumer_id: str, permits: int, delivered: int, again: int = 0, blocked: bool = False):
    nothing = dict.fromkeys(RESULT.names)
    said = dict(permits=permits, is_blocked=blocked, delivered=delivered, redelivered=again)
    return tuple((nothing | dict(cursor=number, kind="consumer", consumer_id=consumer_id) | said).values())


def whole(number: int, delivered: int, again: int = 0, blocked: bool = False):
    said = dict(is_blocked=blocked, delivered=delivered, redelivered=again)
    return tuple((dict.fromkeys(RESULT.names) | dict(cursor=number, kind="cursor") | said).values())


def test_candidates_are_dealt_out_over_consumers_in_line(spark):
    """Each stretch of candidates stays one of its own: whoever stores ranges unites those that adjoin and agree."""
    rows = [
        # 1: a fair share each, then what is left of each one's permits
        cursor(1, permits=70),
        *turns(1, a=60, b=10),
        unread(1, 0, 99),
        # 2: replay that is due goes first, replay that is not stays, whatever lies between
        cursor(2, permits=3),
        *turns(2, a=3),
        held(2, 0, 1, "replay", due_time=NOW + 1),
        held(2, 2, 3, "replay", redelivery_count=2),
        unread(2, 4, 9),
        # 3: an entry of five is never split, and permits of one still get one
        cursor(3, permits=2),
        *turns(3, a=1, b=1),
        unread(3, 0, 3, batch_size=5),
        # 4: the subscription's limit of unacknowledged messages holds unread entries back, not replay
        cursor(4, permits=50, limit=4),
        *turns(4, a=50),
        held(4, 0, 1, "pending", consumer_id="a", delivery_round=3),
        held(4, 2, 2, "replay"),
        unread(4, 3, 9),
        # 5: on Exclusive everything goes by position
        cursor(5, permits=2, is_single_active=True),
        *turns(5, a=2),
        unread(5, 0, 2),
        held(5, 3, 3, "replay"),
        # 6: an entry that is not due yet waits, and costs nobody a permit
        cursor(6, permits=2),
        *turns(6, a=2),
        unread(6, 0, 0, due_time=NOW + 5),
        unread(6, 1, 1, due_time=NOW),
        unread(6, 2, 2),
        # 7: given back once more than the policy allows
        cursor(7, permits=1, most=1, redelivered=["a"]),
        *turns(7, a=1),
        held(7, 0, 0, "pending", consumer_id="a", delivery_round=3, redelivery_count=1),
        held(7, 1, 1, "pending", consumer_id="a", delivery_round=3),
        # 8: what came due and was never offered goes behind what came back, before what is unread, limit or not
        cursor(8, permits=5, limit=2),
        *turns(8, a=5),
        held(8, 3, 3, "replay"),
        unread(8, 4, 9),
        held(8, 101, 101, "replay"),
        unread(8, 105, 106, due_time=NOW - 1),
        unread(8, 107, 107, due_time=NOW),
        held(8, 109, 109, "replay", due_time=NOW - 2),
    ]
    planned = plan_round(inputs(spark, *rows))
    expected = spark.createDataFrame(
        [
            *(whole(1, 70, 4), consumer(1, "a", 0, 60, 4), consumer(1, "b", 0, 10)),
            *(whole(2, 3, 2), consumer(2, "a", 0, 3, 2)),
            *(whole(3, 10, 10), consumer(3, "a", -4, 5, 5), consumer(3, "b", -4, 5, 5)),
            *(whole(4, 3, 2, blocked=True), consumer(4, "a", 47, 3, 2)),
            *(whole(5, 2, 2), consumer(5, "a", 0, 2, 2)),
            *(whole(6, 2, 2), consumer(6, "a", 0, 2, 2)),
            *(whole(7, 1, 1), consumer(7, "a", 0, 1, 1)),
            *(whole(8, 5, 1, blocked=True), consumer(8, "a", 0, 5, 1)),
            given(1, 0, 34, "a"),
            given(1, 35, 44, "b"),
            given(1, 45, 69, "a"),
            state(2, 0, 1, "replay", None, None, 0, NOW + 1, None, 1),
            given(2, 2, 3, "a", 2),
            given(2, 4, 4, "a"),
            given(3, 0, 0, "a", batch_size=5),
            given(3, 1, 1, "b", batch_size=5),
            state(4, 0, 1, "pending", "a", 3, 0, None, None, 1),
            given(4, 2, 2, "a"),
            given(4, 3, 4, "a"),
            given(5, 0, 1, "a"),
            state(5, 3, 3, "replay", None, None, 0, None, None, 1),
            state(6, 0, 0, "replay", None, None, 0, NOW + 5, None, 1),
            given(6, 1, 1, "a"),
            given(6, 2, 2, "a"),
            state(7, 0, 0, "dead", "a", 3, 2, None, None, 1),
            given(7, 1, 1, "a", 1),
            given(8, 3, 3, "a"),
            given(8, 101, 101, "a"),
            given(8, 109, 109, "a"),
            given(8, 105, 106, "a"),
        ],
        from_arrow_schema(RESULT),
    )
    assert_df_equality(planned, expected, ignore_row_order=True, ignore_nullable=True)


def test_on_key_shared_each_consumer_gets_what_is_in_its_line(spark):
    """2.31, 2.38, 2.41 with 0.22. Permits and limits are the consumer's own; what is held keeps nobody else waiting."""
    rows = [
        # 1: lines know nothing of each other, whoever is first and however few permits there are
        cursor(1, permits=5),
        *alone(1, a=2, b=3),
        unread(1, 0, 9, line="a"),
        unread(1, 10, 19, line="b"),
        # 2: in a line replay goes first, by deliver time, then what is unread; what is held or owned by nobody stays
        cursor(2, permits=60),
        *alone(2, a=30, b=30),
        held(2, 0, 0, "replay", due_time=NOW, line="a"),
        held(2, 1, 1, "replay", due_time=NOW - 1, line="b"),
        held(2, 2, 3, "replay", is_held=True),
        held(2, 4, 4, "replay", line="a", is_held=True),
        unread(2, 5, 5, line="a", is_held=True),
        unread(2, 6, 6, is_held=True),
        unread(2, 7, 8, line="b"),
        # 3: a batch counts as one, so permits may go below zero
        cursor(3, permits=3),
        *alone(3, a=2, b=1),
        unread(3, 0, 3, batch_size=5, line="a"),
        unread(3, 4, 4, line="b"),
        # 4: what comes back while its hash is held is replay, and waits
        cursor(4, permits=9, redelivered=["b"], left=["c"]),
        *alone(4, a=9, b=0),
        pending(4, 0, 0, "b", line="a", is_held=True),
        pending(4, 1, 1, "c", line="a", is_held=True),
        pending(4, 2, 2, "c", line="a"),
        pending(4, 3, 3, "d", line="a", is_held=True),
        # 5: acknowledged in part or whole though it is held
        cursor(5, permits=9),
        *alone(5, a=9),
        unread(5, 0, 0, batch_size=4, line="a", is_held=True),
        unread(5, 1, 1, line="a", is_held=True),
        left_of_batch(5, 0, 0b1000),
        ack(5, 1, 1),
        # 6: the subscription's limit holds unread entries of each line back, not replay
        cursor(6, permits=40, limit=4),
        *alone(6, a=20, b=20),
        held(6, 0, 1, "pending", consumer_id="a", delivery_round=3, line="a"),
        held(6, 2, 2, "replay", line="a"),
        unread(6, 3, 9, line="a"),
        unread(6, 10, 19, line="b"),
        # 7: a consumer's own limit counts what it has, of whatever line
        cursor(7, permits=40),
        *(row | {"limit": 3} for row in alone(7, a=20, b=20)),
        held(7, 0, 1, "pending", consumer_id="a", delivery_round=3, line="b", is_held=True),
        unread(7, 2, 5, line="a"),
        unread(7, 6, 9, line="b"),
        # 8: nobody takes what is in the line of one that is not there
        cursor(8, permits=40),
        *alone(8, a=40),
        held(8, 0, 0, "replay", line="gone"),
        unread(8, 1, 3, line="gone"),
    ]
    planned = plan_round(inputs(spark, *rows))
    expected = spark.createDataFrame(
        [
            *(whole(1, 5, 2), consumer(1, "a", 0, 2, 2), consumer(1, "b", 0, 3)),
            given(1, 0, 1, "a"),
            given(1, 10, 12, "b"),
            *(whole(2, 4, 2), consumer(2, "a", 29, 1, 1), consumer(2, "b", 27, 3, 1)),
            given(2, 0, 0, "a"),
            given(2, 1, 1, "b"),
            state(2, 2, 3, "replay", None, None, 0, None, None, 1),
            state(2, 4, 4, "replay", None, None, 0, None, None, 1),
            given(2, 7, 8, "b"),
            *(whole(3, 11, 10), consumer(3, "a", -8, 10, 10), consumer(3, "b", 0, 1)),
            given(3, 0, 1, "a", batch_size=5),
            given(3, 4, 4, "b"),
            *(whole(4, 1, 1), consumer(4, "a", 8, 1, 1), consumer(4, "b", 0, 0)),
            state(4, 0, 0, "replay", None, None, 1, None, None, 1),
            state(4, 1, 1, "replay", None, None, 0, None, None, 1),
            given(4, 2, 2, "a"),
            state(4, 3, 3, "pending", "d", 3, 0, None, None, 1),
            *(whole(5, 0), consumer(5, "a", 9, 0)),
            state(5, 0, 0, "replay", None, None, 0, None, [0b1000], 4),
            state(5, 1, 1, "acknowledged"),
            *(whole(6, 5, 2, blocked=True), consumer(6, "a", 17, 3, 2), consumer(6, "b", 18, 2)),
            state(6, 0, 1, "pending", "a", 3, 0, None, None, 1),
            given(6, 2, 2, "a"),
            given(6, 3, 4, "a"),
            given(6, 10, 11, "b"),
            *(whole(7, 4, 1), consumer(7, "a", 19, 1, 1, blocked=True), consumer(7, "b", 17, 3, blocked=True)),
            state(7, 0, 1, "pending", "a", 3, 0, None, None, 1),
            given(7, 2, 2, "a"),
            given(7, 6, 8, "b"),
            *(whole(8, 0), consumer(8, "a", 40, 0)),
            state(8, 0, 0, "replay", None, None, 0, None, None, 1),
        ],
        from_arrow_schema(RESULT),
    )
    assert_df_equality(planned, expected, ignore_row_order=True, ignore_nullable=True)


ACKNOWLEDGING = [
    # 1: whole entries, of ranges in the middle and of what nobody holds
    cursor(1, permits=70),
    *turns(1, a=60, b=10),
    pending(1, 0, 9),
    pending(1, 10, 14, "b"),
    held(1, 20, 29, "acknowledged", batch_size=None, redelivery_count=None),
    ack(1, 3, 4),
    ack(1, 8, 12),
    ack(1, 18, 21),
    # 2: parts of batches, one of them all that was left; a consumer that left is still counted
    cursor(2, permits=0),
    pending(2, 0, 5, "gone", batch_size=4, redelivery_count=2),
    left_of_batch(2, 1, 0b0101),
    left_of_batch(2, 2),
    ack(2, 4, 4),
    # 3: both limits are met no more, or still; one of the two consumers holds just what is elsewhere
    cursor(3, permits=9, limit=8, is_blocked=True, unacked_elsewhere=3),
    *(row | {"limit": 4, "is_blocked": True, "unacked_elsewhere": 1} for row in turns(3, a=9, b=0)),
    pending(3, 0, 5),
    ack(3, 0, 3),
    # 4: a limit is reached though something was acknowledged
    cursor(4, permits=9, limit=4),
    *(row | {"limit": 4} for row in turns(4, a=9)),
    pending(4, 0, 5),
    ack(4, 0, 0),
    # 5: Failover, and 6: Key_Shared
    cursor(5, permits=9, is_single_active=True),
    *turns(5, a=9),
    pending(5, 0, 5),
    ack(5, 2, 2),
    cursor(6, permits=9),
    *alone(6, a=5, b=4),
    pending(6, 0, 5, line="a", is_held=True),
    ack(6, 0, 1),
]


def test_a_round_that_only_acknowledges_is_planned_without_the_steps_that_have_nothing_to_do(spark):
    planned = plan_round(inputs(spark, *ACKNOWLEDGING))
    assert planned.where("kind = 'range'").count() == 24
    shorter = plan_acknowledgements(inputs(spark, *ACKNOWLEDGING))
    assert_df_equality(shorter, planned, ignore_row_order=True, ignore_nullable=True)


def table_of(*rows: dict) -> pa.Table:
    return pa.Table.from_pylist(grouped(rows), schema=SCHEMA)


@pytest.mark.parametrize(
    "others, plan",
    [
        ([], plan_acknowledgements),
        ([left_of_batch(2, 2)], plan_acknowledgements),
        ([pending(1, 40, 40, ack_set=[1])], plan_acknowledgements),
        ([unread(1, 30, 39)], plan_round),
    ],
)
def test_a_round_has_the_shortest_plan_for_its_rows(others, plan):
    whole = [row for row in ACKNOWLEDGING if row.get("ack_set") is None]
    assert plan_for(table_of(*whole, *others)) is plan


@pytest.mark.parametrize(
    "other",
    [
        unread(1, 30, 39),
        returned(1, 0, 0, "a", NOW + 5),
        held(1, 30, 31, "replay"),
        pending(1, 30, 31, due_time=NOW + 5),
        cursor(7, permits=0, left=["a"]),
        cursor(7, permits=0, redelivered=["a"]),
    ],
    ids=lambda row: " ".join(str(row[name]) for name in ("kind", "status", "left", "redelivered") if row.get(name)),
)
def test_one_row_more_that_could_come_back_or_go_out_and_a_round_does_not_only_acknowledge(other):
    assert only_acknowledges(table_of(*ACKNOWLEDGING))
    assert not only_acknowledges(table_of(*ACKNOWLEDGING, other))
    assert only_acknowledges(SCHEMA.empty_table())
