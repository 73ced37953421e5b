"""Splitting against golden m2, and which chunks make up a message against a fold over one chunk at a time."""

import numpy as np
import pytest

from pulsar_spark.errors import InvalidMessage
from pulsar_spark.protocol.chunks.chunking import (
    Open,
    Verdict,
    chunk_count,
    chunk_payload_bytes,
    judged,
    none_open,
    parts_of,
)
from tests.protocol.golden import cases


@pytest.mark.parametrize("case", cases("m2_chunk_count"), ids=lambda case: "-".join(map(str, case["input"].values())))
def test_chunk_count_as_pulsar_counts(case):
    assert {"total_chunks": chunk_count(**case["input"])} == case["expected"]


def test_metadata_leaves_what_room_there_is():
    assert chunk_payload_bytes(5_242_880, 100) == 5_242_780
    assert chunk_payload_bytes(101, 100, 50) == 1
    with pytest.raises(InvalidMessage, match="metadata alone takes 101 of the 101 bytes"):
        chunk_payload_bytes(101, 101)


def folded(chunks: list[tuple[int, int, int]]) -> tuple[list, dict]:
    """Verdict and row of chunk 0 of each (group, chunk id, count), one at a time as Pulsar's consumer takes them; and
    what is open in the end."""
    state, outcomes = {}, []
    for row, (group, chunk, of) in enumerate(chunks):
        following, total, opener = state.pop(group, (0, 0, -1))
        if not 0 <= chunk < of:
            verdict = Verdict.MALFORMED
        elif chunk == 0:
            following, total, opener, verdict = 1, of, row, Verdict.TAKEN
        elif not following:
            verdict = Verdict.NO_FIRST
        elif chunk > following:
            verdict = Verdict.GAP
        elif chunk < following:
            verdict = Verdict.REPEATED
        elif of != total:
            verdict = Verdict.DISAGREES
        else:
            following, verdict = following + 1, Verdict.TAKEN
        is_taken = verdict == Verdict.TAKEN
        if is_taken and chunk == total - 1:
            verdict = Verdict.COMPLETES
        elif following and verdict in (Verdict.TAKEN, Verdict.REPEATED):
            state[group] = following, total, opener
        outcomes.append((verdict, opener if is_taken else -1))
    return outcomes, state


@pytest.mark.parametrize("seed", range(60))
def test_chunks_are_judged_as_one_by_one_wherever_they_are_cut(seed):
    dice = np.random.default_rng(seed)
    rows, groups = int(dice.integers(1, 120)), int(dice.integers(1, 4))
    group = dice.integers(0, groups, rows)
    of = np.where(dice.random(rows) < 0.95, 3, dice.integers(-1, 5, rows))
    chunk = np.where(dice.random(rows) < 0.5, dice.integers(-1, 4, rows), 0)
    for one in range(groups):  # most of them in the order in which a producer sends them
        mine = np.flatnonzero((group == one) & (dice.random(rows) < 0.8))
        chunk[mine] = np.arange(len(mine)) % 3
    outcomes, state = folded(list(zip(group.tolist(), chunk.tolist(), of.tolist())))

    cut = int(dice.integers(0, rows + 1))
    first = judged(group[:cut], chunk[:cut], of[:cut], none_open(groups))
    second = judged(group[cut:], chunk[cut:], of[cut:], first.left)
    openers = np.where(second.openers >= 0, second.openers + cut, -1)
    carried = (second.verdicts <= Verdict.COMPLETES) & (openers < 0)
    openers[carried] = first.left.openers[group[cut:][carried]]
    verdicts = np.concatenate([first.verdicts, second.verdicts])
    assert list(zip(verdicts.tolist(), [*first.openers.tolist(), *openers.tolist()])) == outcomes
    left = Open(*second.left)
    opened = np.where(left.openers >= 0, left.openers + cut, first.left.openers)
    found = zip(left.next_chunks.tolist(), left.num_chunks.tolist(), opened.tolist())
    assert {one: each for one, each in enumerate(found) if each[0]} == state


@pytest.mark.parametrize("chunks, parts", [
    ("0/1", [0]),
    ("0/2 1/2", [0, 1]),
    ("0/3 1/3 0/3 1/3 2/3", [2, 3, 4]),
    ("0/3 1/3 0/3 2/3", []),
    ("0/3 1/3 1/3 0/3 1/3 1/3 2/3", [3, 4, 6]),
    ("1/2", []),
    ("0/2 1/3", []),
    ("0/2 1/2 0/2 1/2", [2, 3]),
    ("0/2 1/2 1/2", []),
    ("0/2 2/2 1/2", []),
    ("0/2 -1/2 1/2", []),
    ("0/0", []),
    ("", []),
])  # fmt: skip
def test_parts_of_the_message_that_the_last_row_completes(chunks, parts):
    rows = np.array([each.split("/") for each in chunks.split()], np.int64).reshape(-1, 2)
    assert parts_of(rows[:, 0], rows[:, 1]).tolist() == parts
