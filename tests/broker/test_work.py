"""Rows of a round come together in columns; returns that overlap are cut; what the plan gives is put in its place."""

from heapq import merge

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.gathering.affected import effective_returns
from pulsar_spark.broker.planning.work import Rows, Work
from pulsar_spark.broker.requests.drafts import CursorDraft, Return
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, Range, spliced
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.transforms.round_inputs import KINDS, RESULT, SCHEMA, STATE

POSITIONS = range(12)


def asked(*returns: tuple) -> CursorDraft:
    cursor = Cursor(CursorKey("topic", -1, "s"), "t", -1, 0, "Shared")
    return CursorDraft(cursor, returns=[Return(*each) for each in returns])


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


@pytest.mark.parametrize(
    "returns, effective",
    [
        ([(0, 9, "a", 5), (3, 4, "a", 0)], {0: 5, 1: 5, 2: 5, 3: 0, 4: 0, 5: 5}),
        ([(3, 4, "a", 0), (0, 9, "a", 5)], {position: 5 for position in range(6)}),
        ([(0, 5, "b", 0), (2, 2, "a", 7)], {2: 7}),
        ([(6, 8, "a", 0), (6, 8, "b", 1)], {6: 1, 7: 1, 8: 1}),
        ([(9, 9, "a", 0)], {}),
    ],
)
def test_of_each_entry_the_last_return_by_its_holder_counts(returns, effective):
    found = effective_returns(asked(*returns), [held(0, 5, "a"), held(6, 8, "b"), Range(9, 9, ACKNOWLEDGED)])
    assert {at: each.due_time for each in found for at in range(each.first, each.last + 1)} == effective


@given(
    st.lists(
        st.tuples(
            st.sampled_from(POSITIONS), st.integers(0, 4), st.sampled_from("ab"), st.integers(0, 3), st.booleans()
        ),
        max_size=8,
    ),
    st.lists(st.sampled_from("ab-"), min_size=12, max_size=12),
)
def test_effective_returns_are_those_of_each_position_by_itself(drawn, holders):
    returns = [(first, first + more, *said) for first, more, *said in drawn]
    planned = spliced([], [], (held(at, at, holder) for at, holder in enumerate(holders) if holder != "-"))
    expected = {}
    for first, last, consumer, *said in returns:
        expected |= {at: (consumer, *said) for at in range(first, min(last + 1, 12)) if holders[at] == consumer}
    found = effective_returns(asked(*returns), planned)
    assert {at: said for first, last, *said in found for at in range(first, last + 1)} == {
        at: list(said) for at, said in expected.items()
    }
    assert sum(last - first + 1 for first, last, *_ in found) == len(expected), "none overlaps another"


@given(st.lists(st.sampled_from("ab-"), min_size=12, max_size=12), st.data())
def test_what_is_spliced_is_what_merging_everything_gives(holders, data):
    ranges = spliced([], [], (held(at, at, holder) for at, holder in enumerate(holders) if holder != "-"))
    numbers = sorted(data.draw(st.sets(st.sampled_from(range(len(ranges))))) if ranges else [])
    kept = [each for number, each in enumerate(ranges) if number not in numbers]
    free = [at for at in POSITIONS if not any(each.first <= at <= each.last for each in kept)]
    new = [held(at, at, data.draw(st.sampled_from("abc"))) for at in free if data.draw(st.booleans())]
    assert spliced(ranges, numbers, new) == spliced([], [], merge(kept, new))
