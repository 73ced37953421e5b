"""Rows of a round come together in columns; what the plan gives is put in its place."""

from heapq import merge

from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.broker.planning.work import Rows, Work
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, Range, spliced
from pulsar_spark.transforms.round_inputs import KINDS, RESULT, SCHEMA, STATE

POSITIONS = range(12)


def held(first: int, last: int, consumer_id: str) -> Range:
    return Range(first, last, PENDING, consumer_id, 1, 0, None, None, 1)


def test_rows_of_a_kind_have_its_columns_and_no_others():
    rows = Rows()
    rows.extend("return", 3, [(1, 2, "c", 50)])
    rows.add("ack", 4, first=7, last=9)
    assert [{name: value for name, value in row.items() if value is not None} for row in rows.table().to_pylist()] == [
        dict(cursor=4, kind="ack", first=7, last=9),
        dict(cursor=3, kind="return", first=1, last=2, consumer_id="c", due_time=50),
    ]
    assert Rows().table().schema == SCHEMA


def test_columns_that_rows_leave_out_at_their_end_are_null():
    rows = Rows()
    rows.extend("unread", 0, [(1, 2, 1, None)])
    rows.extend("unread", 1, [(3, 4, 1, 50, "a", True), (5, 5, 1, None, "b", False)])
    rows.extend("unread", 2, [])
    assert [(row["first"], row["due_time"], row["line"], row["is_held"]) for row in rows.table().to_pylist()] == [
        (1, None, None, None),
        (3, 50, "a", True),
        (5, None, "b", False),
    ]


def test_kinds_state_and_result_name_the_same_columns():
    assert set().union(*KINDS.values()) | {"cursor", "kind"} == set(SCHEMA.names)
    assert (*STATE, "entries") == Range._fields and set(STATE) < set(RESULT.names)


def test_the_work_of_some_cursors_is_numbered_afresh():
    rows = Rows()
    for cursor in (0, 1, 2):
        rows.extend("ack", cursor, [(cursor, cursor)])
    work = Work(rows.table(), ["a", "b", "c"], ["x", "y", "z"])
    some = work.only((2, 0))
    assert (some.cursors, some.affected) == (["c", "a"], ["z", "x"])
    assert sorted(zip(some.rows["cursor"].to_pylist(), some.rows["first"].to_pylist())) == [(0, 2), (1, 0)]
    nothing = work.only(())
    assert not nothing and nothing.rows.num_rows == 0


@given(st.lists(st.sampled_from("ab-"), min_size=12, max_size=12), st.data())
def test_what_is_spliced_is_what_merging_everything_gives(holders, data):
    ranges = spliced([], [], (held(at, at, holder) for at, holder in enumerate(holders) if holder != "-"))
    numbers = sorted(data.draw(st.sets(st.sampled_from(range(len(ranges))))) if ranges else [])
    kept = [each for number, each in enumerate(ranges) if number not in numbers]
    free = [at for at in POSITIONS if not any(each.first <= at <= each.last for each in kept)]
    new = [held(at, at, data.draw(st.sampled_from("abc"))) for at in free if data.draw(st.booleans())]
    assert spliced(ranges, numbers, new) == spliced([], [], merge(kept, new))
