"""Rows of a round come together in columns; what the plan gives is put in its place."""

from pulsar_spark.broker.planning.work import PlanInputs, Work
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.transforms.round_inputs import ENTRIES, FACTS, KINDS, LEAF, RESULT, SCHEMA, STATE, TURNS, leaf_of

POSITIONS = range(12)


def test_rows_of_a_kind_have_its_columns_and_no_others():
    rows = PlanInputs()
    rows.extend("range", 3, [(1, 2, "pending", "c", 50)])
    rows.add("cursor", 4, first=7, last=9)
    assert [{name: value for name, value in row.items() if value is not None} for row in rows.table().to_pylist()] == [
        dict(cursor=4, kind="cursor", first=7, last=9),
        dict(cursor=3, kind="range", first=1, last=2, status="pending", consumer_id="c", delivery_round=50),
    ]
    assert PlanInputs().table().schema == SCHEMA


def test_columns_that_rows_leave_out_at_their_end_are_null():
    rows = PlanInputs()
    rows.extend("consumer", 0, [(1, 1, "a")])
    rows.extend("consumer", 1, [(3, 3, "b", 0, 2), (5, 5, "c", 1, None)])
    rows.extend("consumer", 2, [])
    assert [(row["first"], row["consumer_id"], row["lap"], row["peers"]) for row in rows.table().to_pylist()] == [
        (1, "a", None, None),
        (3, "b", 0, 2),
        (5, "c", 1, None),
    ]


def test_kinds_state_and_result_name_the_same_columns():
    assert set().union(*KINDS.values()) | {"cursor", "kind"} == set(SCHEMA.names)
    assert (*STATE, "entries") == Range._fields and set(STATE) < set(RESULT.names)


def test_the_plan_s_rows_know_their_cursor_and_end_each_line():
    """A row more for each consumer, of its first lap, and for each line, of nobody; times without a clock are now."""
    rows = PlanInputs()
    rows.add("cursor", 5, first=0, last=0, left=["b"], redelivered=[], permits=9, now=7)
    rows.add("cursor", 6, first=0, last=0, left=[], redelivered=["a", "b"], permits=8, now=7, wall=3)
    rows.extend("range", 6, [(0, 3, "pending", "b"), (4, 4, "pending", "c")])
    for lap in (0, 1):
        rows.add("consumer", 5, first=lap, last=lap, consumer_id="b", lap=lap, peers=2, permits=1)
    rows.add("consumer", 6, first=0, last=0, consumer_id="a", lap=0, line="a")
    leaf = leaf_of(rows.table()).sort_by([("cursor", "ascending"), ("axis", "ascending"), ("first", "ascending")])
    assert leaf.schema == LEAF and leaf_of(SCHEMA.empty_table()).schema == LEAF
    assert [
        (
            row["cursor"],
            row["axis"],
            row["first"],
            row["consumer_id"],
            row["line"],
            row["turn"] and row["turn"]["lap"],
            row["limits"]["permits"],
            row["limits"]["wall"],
            row["has_left"],
            row["is_redelivered"],
        )
        for row in leaf.to_pylist()
    ] == [
        (5, TURNS, 0, "b", None, 0, 9, 7, True, False),
        (5, TURNS, 1, "b", None, 1, 9, 7, True, False),
        (5, TURNS, MAX_LONG, None, None, None, 9, 7, False, False),
        (5, FACTS, 0, None, None, None, 9, 7, False, False),
        (5, FACTS, 0, "b", None, 0, 9, 7, True, False),
        (6, ENTRIES, 0, "b", None, None, 8, 3, False, True),
        (6, ENTRIES, 4, "c", None, None, 8, 3, False, False),
        (6, TURNS, 0, "a", "a", 0, 8, 3, False, True),
        (6, TURNS, MAX_LONG, None, "a", None, 8, 3, False, False),
        (6, FACTS, 0, None, None, None, 8, 3, False, False),
        (6, FACTS, 0, "a", "a", 0, 8, 3, False, True),
    ]


def test_the_work_of_some_cursors_is_numbered_afresh():
    rows = PlanInputs()
    for cursor in (0, 1, 2):
        rows.extend("range", cursor, [(cursor, cursor)])
    work = Work(rows.table(), ["a", "b", "c"], ["x", "y", "z"])
    some = work.only((2, 0))
    assert (some.cursors, some.entries) == (["c", "a"], ["z", "x"])
    assert sorted(zip(some.rows["cursor"].to_pylist(), some.rows["first"].to_pylist())) == [(0, 2), (1, 0)]
    nothing = work.only(())
    assert not nothing and nothing.rows.num_rows == 0
