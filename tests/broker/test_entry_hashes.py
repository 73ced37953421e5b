"""Hashes of entries in blocks: read once, read again when they were dropped, read on when the topic grew."""

import numpy as np
import pytest

from pulsar_spark.broker import entry_hashes
from pulsar_spark.broker.entry_hashes import EntryHashes

BLOCK = 8


class Ledgers:
    """A partition of ``end_position`` entries; the hash of each is a hundred times its position."""

    def __init__(self, end_position: int):
        self.end_position = end_position
        self.read: list[tuple[int, int]] = []

    def parts(self, first: int, last: int):
        self.read.append((first, last))
        return [(first, last)]


@pytest.fixture
def blocks_of(monkeypatch):
    monkeypatch.setattr(entry_hashes, "BLOCK_ENTRIES", BLOCK)
    monkeypatch.setattr(entry_hashes, "MOST_BLOCKS", 2)
    monkeypatch.setattr(
        entry_hashes,
        "read_hashes",
        lambda _, runs: np.concatenate([np.arange(first, last + 1, dtype=np.int32) * 100 for first, last in runs]),
    )
    return lambda end: EntryHashes(None, Ledgers(end))


@pytest.mark.parametrize("first,last", [(0, 0), (0, 29), (7, 8), (8, 15), (29, 29), (5, 4)])
def test_the_hashes_of_a_stretch(blocks_of, first, last):
    assert blocks_of(30).between(first, last).tolist() == [at * 100 for at in range(first, last + 1)]


@pytest.mark.parametrize("positions", [[], [3], [0, 7, 8, 9, 23, 29], list(range(30))])
def test_the_hashes_at_positions(blocks_of, positions):
    assert blocks_of(30).at(np.array(positions, np.int64)).tolist() == [at * 100 for at in positions]


def test_a_topic_that_grows_is_read_on_from_where_it_ended(blocks_of):
    hashes = blocks_of(5)
    ledgers = hashes._ledgers
    assert hashes.between(0, 4).tolist() == [0, 100, 200, 300, 400]
    ledgers.end_position = 10
    assert hashes.between(3, 9).tolist() == [300, 400, 500, 600, 700, 800, 900]
    assert hashes.between(0, 9).tolist() == [at * 100 for at in range(10)]
    assert ledgers.read == [(0, 4), (5, 7), (8, 9)]


def test_the_block_that_was_asked_for_longest_ago_goes(blocks_of):
    hashes = blocks_of(24)
    for position in (0, 8, 0, 16, 0, 8):
        assert hashes.between(position, position).tolist() == [position * 100]
    assert hashes._ledgers.read == [(0, 7), (8, 15), (16, 23), (8, 15)]
