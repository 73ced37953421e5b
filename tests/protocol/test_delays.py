"""Positions of entries as bytes, against the positions themselves."""

import numpy as np
import pytest

from pulsar_spark.protocol.acknowledgement.packing import packed, unpacked

LAST = (1 << 60) - 1


@pytest.mark.parametrize("seed", range(20))
def test_packed_positions_come_back_in_their_order(seed):
    dice = np.random.default_rng(seed)
    positions = dice.integers(0, 1 << dice.integers(1, 61), size=dice.integers(0, 2_000))
    if seed % 2:
        positions.sort()
    assert unpacked(packed(positions)).tolist() == positions.tolist()


@pytest.mark.parametrize("positions", [[], [0], [63], [64], [LAST], [LAST, 0, LAST], [5, 5, 5]])
def test_packed_positions_at_the_borders_of_a_byte(positions):
    assert unpacked(packed(np.array(positions, np.int64))).tolist() == positions


def test_positions_that_adjoin_take_a_byte_each():
    assert len(packed(np.arange(10**12, 10**12 + 100_000))) < 100_010
