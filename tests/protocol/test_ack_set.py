"""Ack sets against Pulsar's BitSetRecyclable (golden h2), and the rule for cumulative ones (semantics 3.20)."""

import pytest

from pulsar_spark.protocol.acknowledgement import ack_set
from tests.protocol.golden import cases


@pytest.mark.parametrize("case", cases("h2_ack_set_words"))
def test_intersections_have_the_words_of_pulsar(case):
    kept = ack_set.full(case["input"]["batch_size"])
    for given, expected in zip(case["input"]["ack_sets"], case["expected"]["after_each"], strict=True):
        kept = ack_set.intersect(kept, [int(word) for word in given])
        assert [str(word) for word in kept] == expected["words"]
        assert ack_set.count(kept) == expected["unacked"] == len(ack_set.indexes(kept))
        assert ack_set.is_empty(kept) is expected["empty"]


@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 200])
def test_clearing_every_index_empties_the_set(size):
    kept = ack_set.full(size)
    assert ack_set.count(kept) == size
    for index in range(size):
        assert ack_set.first_unacked(kept) == index
        kept = ack_set.clear(kept, index)
        assert kept == ack_set.of_indexes(range(index + 1, size))
    assert kept == ()


def test_indexes_and_words_are_two_forms_of_one_set():
    assert ack_set.of_indexes([63]) == (-(2**63),)
    assert ack_set.indexes(ack_set.of_indexes([0, 63, 64, 191])) == (0, 63, 64, 191)
    assert ack_set.trimmed([1, 0, 0]) == (1,)


@pytest.mark.parametrize(
    ("kept", "given", "left"),
    [
        ([0, 1, 2, 3], [2, 3], [2, 3]),
        ([0, 3], [2, 3], [2, 3]),
        ([3], [2, 3], [3]),
        ([2, 3], [2, 4], [2, 3]),
        ([2, 3], [], []),
        ([], [2], []),
    ],
)
def test_a_cumulative_set_replaces_only_when_its_first_index_is_larger(kept, given, left):
    of = ack_set.of_indexes
    assert ack_set.replaced_by_cumulative(of(kept), of(given)) == of(left)


def test_sets_of_a_hundred_thousand_words():
    """Each function goes over the words once: where one would go over all of them for each word, this test would take
    minutes."""
    words = tuple([-1] * 100_000 + [1])
    size = 6_400_001
    assert ack_set.trimmed([*words, 0]) == words == ack_set.full(size) == ack_set.intersect(words, words)
    assert ack_set.count(words) == size
    assert len(ack_set.indexes(words)) == size
    assert ack_set.of_indexes(range(0, size, 64)) == tuple([1] * 100_001)
    assert ack_set.first_unacked([0] * 100_000 + [4]) == size + 1
    assert ack_set.has(words, size - 1) and not ack_set.has(words, size)
    assert ack_set.clear(words, size - 1) == words[:-1]
    assert ack_set.replaced_by_cumulative(words, words) == words
