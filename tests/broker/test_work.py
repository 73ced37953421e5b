"""Rows of a round come together in columns; what the plan gives is put in its place."""

from pulsar_spark.broker.planning.work import Rows, Work
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.transforms.round_inputs import KINDS, RESULT, SCHEMA, STATE

POSITIONS = range(12)


def test_rows_of_a_kind_have_its_columns_and_no_others():
    rows = Rows()
    rows.extend("range", 3, [(1, 2, "pending", "c", 50)])
    rows.add("cursor", 4, first=7, last=9)
    assert [{name: value for name, value in row.items() if value is not None} for row in rows.table().to_pylist()] == [
        dict(cursor=4, kind="cursor", first=7, last=9),
        dict(cursor=3, kind="range", first=1, last=2, status="pending", consumer_id="c", delivery_round=50),
    ]
    assert Rows().table().schema == SCHEMA


def test_columns_that_rows_leave_out_at_their_end_are_null():
    rows = Rows()
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


def test_the_work_of_some_cursors_is_numbered_afresh():
    rows = Rows()
    for cursor in (0, 1, 2):
        rows.extend("range", cursor, [(cursor, cursor)])
    work = Work(rows.table(), ["a", "b", "c"], ["x", "y", "z"])
    some = work.only((2, 0))
    assert (some.cursors, some.affected) == (["c", "a"], ["z", "x"])
    assert sorted(zip(some.rows["cursor"].to_pylist(), some.rows["first"].to_pylist())) == [(0, 2), (1, 0)]
    nothing = work.only(())
    assert not nothing and nothing.rows.num_rows == 0
