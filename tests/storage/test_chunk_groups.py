"""Which chunks make up messages, over runs that are numbered, forgotten and read again, against a fold over one entry
at a time."""

from random import Random
from typing import NamedTuple

import numpy as np
import pytest

from pulsar_spark.protocol.chunks.chunk_limits import Group, evictions
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks import judged_chunks
from pulsar_spark.storage.chunks.chunk_groups import STILL_OPEN, ChunkGroups
from pulsar_spark.storage.chunks.chunk_rows import Chunks
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers

MOST, GROUPS = 80, 5


class Entry(NamedTuple):
    group: int | None
    chunk_id: int = 0
    num_chunks: int = 0


class Folded(NamedTuple):
    """(first, last) of complete messages, the parts, where each group began and ended, by first chunk."""

    units: list[tuple[int, int]]
    parts: list[int]
    groups: dict[int, int]


def folded(entries: list[Entry]) -> Folded:
    opened: dict[int, tuple[int, int, int]] = {}
    units, parts, groups = [], [], {}
    for position, (group, chunk, of) in enumerate(entries):
        if group is None:
            continue
        first, following, count = opened.get(group, (None, 0, 0))
        is_next = chunk == following and of == count and first is not None
        if 0 <= chunk < of and (chunk == 0 or is_next):
            if chunk == 0:
                groups |= {first: position} if first is not None else {}
                first, groups[position] = position, STILL_OPEN
            opened[group] = first, chunk + 1, of
            if chunk == of - 1:
                units.append((first, position))
                groups[first] = position
                del opened[group]
                continue
        elif first is not None and not (0 <= chunk < following and chunk < of):
            groups[first] = position
            del opened[group]
        parts.append(position)
    return Folded(units, parts, groups)


def drawn(dice: Random) -> list[Entry]:
    """Mostly chunks as producers send them, three a message."""
    entries, following = [], dict.fromkeys(range(GROUPS), 0)
    for _ in range(dice.randint(1, MOST)):
        group = dice.randrange(GROUPS)
        chunk = following[group] if dice.random() < 0.8 else dice.randint(-1, 4)
        following[group] = (chunk + 1) % 3
        count = 3 if dice.random() < 0.95 else dice.randint(-1, 5)
        entries.append(Entry(None) if dice.random() < 0.2 else Entry(group, chunk, count))
    return entries


@pytest.fixture
def stored(monkeypatch) -> list[Entry]:
    """The entries of a topic, which is no table."""
    entries: list[Entry] = []

    def read(table, runs: list[Run]) -> tuple[Chunks, np.ndarray]:
        places = (place for run in runs for place in range(run.first_position, run.last_position + 1))
        at = [place for place in places if entries[place].group is not None]
        rows = np.array([entries[place] for place in at], np.int64).reshape(-1, 3)
        keys, groups = np.unique(rows[:, 0].astype(np.uint64), return_inverse=True)
        chunks = Chunks(np.array(at, np.int64), keys, groups, rows[:, 1], rows[:, 2], np.array(at, np.int64))
        return chunks, np.zeros(0, np.int64)

    monkeypatch.setattr(judged_chunks, "read_published_chunks", read)
    return entries


def run(first: int, entries: int) -> Run:
    return Run(first, entries, 1, first, str(first), 0, "file", None, None, 1, False, True, False)


@pytest.mark.parametrize("seed", range(60))
def test_groups_are_the_same_however_they_are_read(stored, monkeypatch, seed):
    dice = Random(seed)
    monkeypatch.setattr(judged_chunks, "MOST_READ", dice.choice([1, 3, 7, MOST]))
    stored += drawn(dice)
    ledgers = PartitionLedgers()
    groups = ChunkGroups("table", ledgers)
    cuts = sorted({0, len(stored), *(dice.randrange(len(stored)) for _ in range(dice.randint(0, 6)))})
    for begin, end in zip(cuts, cuts[1:]):
        new = run(begin, end - begin)
        ledgers.add(new._replace(chunks_from=groups.chunks_from(new)))
        if dice.random() < 0.3:
            groups.forget_before(dice.randrange(end))
        if dice.random() < 0.3:
            groups = ChunkGroups("table", ledgers)
        first, expected = dice.randrange(end), folded(stored[:end])
        units = list(zip(*(column.tolist() for column in groups.units(first, end - 1))))
        assert units == [unit for unit in expected.units if unit[1] >= first]
        parts = [at for since, until in groups.parts(first, end - 1) for at in range(since, until + 1)]
        assert parts == [at for at in expected.parts if at >= first]
        assert groups.are_parts(np.arange(first, end)).tolist() == [at in expected.parts for at in range(first, end)]
        firsts = groups.open().firsts.tolist()
        assert firsts == [first for first, until in sorted(expected.groups.items()) if until == STILL_OPEN]


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_told_where_they_begin_and_end(stored, seed):
    dice = Random(seed)
    stored += drawn(dice)
    ledgers = PartitionLedgers()
    ledgers.add(run(0, len(stored)))
    first, last = sorted(dice.randrange(len(stored)) for _ in range(2))
    found = zip(*(column.tolist() for column in ChunkGroups("table", ledgers).between(first, last)))
    everything = sorted(folded(stored).groups.items())
    assert list(found) == [each for each in everything if each[0] <= last and each[1] >= first]


@pytest.mark.parametrize("seed", range(20))
def test_no_more_are_open_than_the_limit_and_the_oldest_go(seed):
    dice = Random(seed)
    firsts = sorted(dice.sample(range(60), 20))
    groups = [Group(first, dice.choice([first + dice.randint(0, 30), STILL_OPEN])) for first in firsts]
    most, begin = dice.randint(1, 4), dice.choice([0, 20])
    expected, left = [], []
    for group in groups:
        left = [each for each in left if each.end > group.first] + ([group] if group.end > group.first else [])
        while len(left) > most and group.first >= begin and group in left:
            expected.append((group.first, left.pop(0)))
    assert [tuple(each) for each in evictions(groups, most=most, begin=begin)] == expected
