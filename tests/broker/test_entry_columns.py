"""What entries say in one column, in blocks: read once, read again when they were dropped, read on when the topic
grew."""

import numpy as np
import pytest

from pulsar_spark.broker.bundle import entry_columns
from pulsar_spark.broker.bundle.entry_columns import EntryColumn

BLOCK = 8


class Ledgers:
    """A partition; each entry says a hundred times its position."""

    def __init__(self):
        self.read: list[tuple[int, int]] = []

    def parts(self, first: int, last: int):
        self.read.append((first, last))
        return [(first, last)]


@pytest.fixture
def column(monkeypatch) -> EntryColumn:
    def read(runs) -> np.ndarray:
        return np.concatenate([np.arange(first, last + 1) * 100 for first, last in runs])

    monkeypatch.setattr(entry_columns, "BLOCK_ENTRIES", BLOCK)
    monkeypatch.setattr(entry_columns, "MOST_BLOCKS", 2)
    monkeypatch.setattr(entry_columns, "_LEAST", 2)
    return EntryColumn(Ledgers(), read, np.int64)


def said(positions) -> list[int]:
    return [at * 100 for at in positions]


@pytest.mark.parametrize("first,last", [(0, 0), (0, 29), (7, 8), (8, 15), (29, 29), (5, 4)])
def test_what_a_stretch_says(column, first, last):
    for _ in range(2):
        assert column.between(first, last).tolist() == said(range(first, last + 1))


@pytest.mark.parametrize("positions", [[], [3], [0, 7, 8, 9, 23, 29], list(range(30))])
def test_what_entries_at_positions_say(column, positions):
    for _ in range(2):
        assert column.at(np.array(positions, np.int64)).tolist() == said(positions)


def test_each_entry_is_read_once_whatever_is_asked_and_however_the_topic_grows(column):
    assert column.between(3, 4).tolist() == said([3, 4])
    assert column.at(np.array([1, 4, 6])).tolist() == said([1, 4, 6])
    assert column.between(0, 9).tolist() == said(range(10))
    assert column.between(0, 11).tolist() == said(range(12))
    assert column._ledgers.read == [(3, 4), (1, 1), (6, 6), (0, 0), (2, 2), (5, 5), (7, 9), (10, 11)]


def test_the_block_that_was_asked_for_longest_ago_goes(column):
    for position in (0, 8, 0, 16, 0, 8):
        assert column.between(position, position).tolist() == said([position])
    assert column._ledgers.read == [(0, 0), (8, 8), (16, 16), (8, 8)]


def test_what_everybody_has_passed_goes(column):
    column.between(0, 15)
    for passed, read in ((7, [(0, 15)]), (8, [(0, 15), (5, 6)])):
        column.drop_before(passed)
        assert column.between(5, 6).tolist() == said([5, 6])
        assert column._ledgers.read == read
