"""Which hashes wait: draining ones (golden l), those of an entry that is to come back, and the rule of 3.2.3."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.keys.draining import (
    Awaited,
    DrainingHashes,
    NothingWaits,
    RecentlyJoined,
    caught_up,
    look_ahead_limit,
)
from tests.protocol.golden import cases, named

OUT = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20), st.booleans()), max_size=12)
ENTRIES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=12)


def out_of(rows: list[tuple[int, int, bool]]) -> Awaited:
    hashes, positions, elsewhere = zip(*rows) if rows else ((), (), ())
    return Awaited(np.array(hashes, np.int32), np.array(positions, np.int64), np.array(elsewhere, bool))


def waiting(waits, entries: list[tuple[int, int]], owners: list[int] | None = None) -> list[bool]:
    hashes, positions = (np.array([entry[at] for entry in entries], np.int64) for at in (0, 1))
    return waits.are_waiting(positions, hashes, np.array(owners or [0] * len(entries))).tolist()


@given(OUT, ENTRIES)
def test_a_hash_waits_while_another_has_it_and_behind_an_entry_that_is_to_come_back(out, entries):
    expected = [
        any(hashed == wanted and (is_elsewhere or at < position) for hashed, at, is_elsewhere in out)
        for wanted, position in entries
    ]
    assert waiting(DrainingHashes(out_of(out)), entries) == expected


@given(ENTRIES)
def test_where_order_was_given_up_nothing_waits(entries):
    assert not any(waiting(NothingWaits(), entries))


def test_who_joined_lately_gets_what_is_below_the_limit_of_the_first_of_them():
    waits, entries = RecentlyJoined({1: 5, 2: 10}), [(0, 4), (0, 5), (0, 9), (0, 10)]
    assert waiting(waits, entries, [1] * 4) == [False, True, True, True]
    assert waiting(waits, entries, [2] * 4) == [False, True, True, True]
    assert not any(waiting(waits, entries, [0] * 4))
    assert not any(waiting(RecentlyJoined({}), entries))


def test_limits_end_from_the_oldest_on():
    joined = {"a": 3, "b": 9, "c": 1}
    assert [caught_up(joined, mark_delete) for mark_delete in (1, 2, 8)] == [[], ["a"], ["a", "b", "c"]]


def test_the_smaller_of_both_limits_holds_and_zero_is_none():
    limits = [
        look_ahead_limit(per_consumer=one, per_subscription=all_of_them, consumers="ab")
        for one, all_of_them in [(2, 10), (9, 10), (0, 10), (2, 0), (0, 0)]
    ]
    assert limits == [4, 10, 10, 4, 0]


class Tracked:
    """Golden l's tracker as rows: who holds entries of hashes that have moved away (``pending``: consumer and hash of
    each). Nothing is counted on the side; what is held is asked of the shipped rule each time."""

    def __init__(self):
        self.pending: list[tuple[str, int]] = []

    def drains(self) -> dict[str, list]:
        counts = Counter(self.pending)
        return {str(hash_code): [consumer, count] for (consumer, hash_code), count in sorted(counts.items())}

    def is_held(self, consumer: str, hash_code: int) -> bool:
        """Would an entry of the hash be held if the consumer owned it?"""
        rows = [(pending, at, holder != consumer) for at, (holder, pending) in enumerate(self.pending)]
        moved = out_of([row for row in rows if row[2]])
        return waiting(DrainingHashes(moved), [(hash_code, len(rows))])[0]

    def add(self, consumer: str, hash_code: int) -> None:
        """What is held for a consumer never comes to be pending there, so that a hash drains at one alone."""
        if self.is_held(consumer, hash_code):
            raise ValueError
        self.pending.append((consumer, hash_code))

    def ack(self, consumer: str, hash_code: int, is_closing: bool) -> None:
        """One entry less; one of another holder is not there to be acknowledged."""
        if (consumer, hash_code) in self.pending:
            self.pending.remove((consumer, hash_code))
        elif any(of_entry == hash_code for _, of_entry in self.pending):
            raise ValueError

    def ask(self, consumer: str, hash_code: int) -> bool:
        """A holder that is asked for owns the hash again: it has not moved any more."""
        self.pending = [each for each in self.pending if each != (consumer, hash_code)]
        return self.is_held(consumer, hash_code)


@pytest.mark.parametrize("case", cases("l_draining_hashes_408"), ids=named)
def test_hashes_drain_as_pulsars_tracker_says(case):
    tracked = Tracked()
    does = {"add": tracked.add, "ack": tracked.ack, "blocked?": tracked.ask}
    for (name, *arguments), expected in zip(case["input"]["ops"], case["expected"]["after_each_op"], strict=True):
        before, result, error = set(tracked.drains()), None, None
        try:
            # A batch of notifications has no counterpart: the round after one that released hashes finds them free.
            result = does[name](*arguments) if name in does else None
        except ValueError:
            error = "IllegalStateException"
        assert (result, error, tracked.drains()) == (expected["result"], expected["error"], expected["draining"])
        released = {int(hash_code) for hash_code in before - set(tracked.drains())}
        if name == "ack":
            assert set(expected["unblocked"]) <= released
        assert not any(tracked.is_held("anybody", hash_code) for hash_code in expected["unblocked"])
