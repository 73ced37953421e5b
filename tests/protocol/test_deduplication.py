"""Which messages are duplicates, however what was sent is cut into commits; and the names of transactions."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.policies.deduplication import Sent, app_id, are_new, begun_after, prefix_since

IDS = st.lists(st.integers(-2, 8), max_size=20)


def in_commits(sent: list[Sent], cuts: set[int], highest: int | None = None) -> list[bool]:
    """The same, judged commit by commit, each by what those before it stored."""
    found, begun, bounds = [], set(), sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    for first, end in zip(bounds, bounds[1:]):
        commit = sent[first:end]
        new = are_new(commit, highest, begun)
        stored = [each for each, is_new in zip(commit, new) if is_new]
        begun = begun_after(stored, begun)
        highest = max((each.sequence_id for each in stored if each.ends), default=highest)
        found += new
    return found


@given(IDS, st.sets(st.integers(0, 20)), st.none() | st.integers(-1, 5))
def test_it_does_not_matter_how_it_is_cut_into_commits(ids, cuts, highest):
    sent = [Sent(each) for each in ids]
    assert in_commits(sent, cuts, highest) == are_new(sent, highest)


@given(IDS, st.none() | st.integers(-1, 5))
def test_what_is_new_is_above_all_that_was_stored_before(ids, highest):
    expected, most = [], highest
    for each in ids:
        expected.append(most is None or each > most)
        most = each if expected[-1] else most
    assert are_new([Sent(each) for each in ids], highest) == expected


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), max_size=8), st.sets(st.integers(0, 24)))
def test_the_chunks_of_a_message_share_its_fate(messages, cuts):
    sent = [Sent(each, chunk == 0, chunk == count - 1) for each, count in messages for chunk in range(count)]
    fates = iter(are_new([Sent(each) for each, _ in messages], None))
    assert in_commits(sent, cuts) == [fate for (_, count), fate in zip(messages, fates) for _ in range(count)]


@given(st.lists(st.lists(st.integers(0, 20), max_size=5), max_size=4), st.none() | st.integers(-1, 10))
def test_of_interleaved_batches_each_sequence_id_is_new_once(batches, highest):
    ids = [each for batch in batches for each in batch]
    found = are_new([Sent(each) for each in ids], highest, is_interleaved=True)
    new = [each for each, is_new in zip(ids, found) if is_new]
    assert sorted(new) == sorted({each for each in ids if highest is None or each > highest})


@pytest.mark.parametrize(
    "ids, highest, expected",
    [
        ([1, 2, 2, 1, 5, 4, 6], None, "1256"),
        ([6, 7], 6, "7"),
        ([0], None, "0"),
        ([0], -1, "0"),
        ([0], 0, ""),
        ([-1, 0], None, "-10"),
    ],
)
def test_as_recorded_on_apache_pulsar(ids, highest, expected):
    """The first two are the scenario ``dedup_by_sequence_id``."""
    found = are_new([Sent(each) for each in ids], highest)
    assert "".join(str(each) for each, is_new in zip(ids, found) if is_new) == expected


def test_chunks_of_a_message_that_is_there_are_duplicates_all_of_them():
    again = [Sent(4, ends=False), Sent(4, begins=False, ends=False), Sent(4, begins=False)]
    assert are_new(again, 4) == [False, False, False]
    assert are_new(again[1:], 4, begun={4}) == [True, True], "of one that was begun the rest is new"


@given(st.sets(st.text(), max_size=8), st.integers(-1, 99), st.integers(0, 10**9))
def test_names_are_kept_apart_and_can_be_written(names, partition, since):
    found = {app_id(since, partition, name) for name in names}
    assert len(found) == len(names)
    for each in found:
        assert each.startswith(prefix_since(since)) and len(each) < 300
        assert re.fullmatch(r"[!-~]*", each) and each.count("/") == 3
        assert json.loads(json.dumps(each)) == each


def test_half_of_a_surrogate_pair_and_very_long_names():
    odd = ["\ud800", "\udc00", "x" * 10**6, "x" * (10**6 + 1), "sha256=" + "0" * 64]
    assert len({app_id(1, 0, name) for name in odd}) == len(odd)
