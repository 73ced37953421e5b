"""Packed ranges are the ranges they were packed from."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range
from pulsar_spark.protocol.acknowledgement.packed_ranges import joined

TAILS = [
    (ACKNOWLEDGED,),
    (PENDING, "a", 3, 0, None, None, 1),
    (PENDING, "b", 4, 1, 99, (5,), 3),
    (REPLAY, None, None, 2, 7, None, 1),
]


@st.composite
def parts(draw):
    """Ranges by position, in parts."""
    found, at = [], 0
    for gap, size, tail in draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**40), st.sampled_from(TAILS)), max_size=12)
    ):
        found.append(Range(at + gap, at + gap + size, *tail))
        at = found[-1].last + 1
    cuts = sorted(draw(st.lists(st.integers(0, len(found)), max_size=3)))
    return [found[first:end] for first, end in zip([0, *cuts], [*cuts, len(found)])]


@given(parts(), st.lists(st.booleans(), min_size=4, max_size=4))
def test_parts_are_what_they_were_and_so_is_the_whole(given, are_packed):
    packed = [joined([part]) for part in given]
    assert packed == given and [list(part) for part in packed] == given
    mixed = [one if is_packed else other for one, other, is_packed in zip(packed, given, are_packed)]
    whole = list(chain.from_iterable(given))
    assert joined(mixed) == whole and [*joined(mixed)] == whole
    assert all(range_ == other for part, others in zip(packed, given) for range_, other in zip(part, others))
    assert [joined(mixed)[at] for at in range(len(whole))] == whole and joined(mixed)[1:] == whole[1:]


@given(parts(), parts())
def test_they_are_equal_as_objects_are(one, other):
    ranges, others = (list(chain.from_iterable(each)) for each in (one, other))
    assert (joined(one) == joined(other)) == (ranges == others)
    with_other_tails = [range_._replace(status="other") for range_ in ranges[:1]] + ranges[1:]
    assert (joined(one) == joined([with_other_tails])) == (not ranges)
    assert joined(one) == joined([ranges[1:], ranges[:1]]).in_order()
