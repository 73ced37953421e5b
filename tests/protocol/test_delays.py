"""What is delayed, and positions of due entries as bytes, against the positions themselves."""

import numpy as np
import pytest

from pulsar_spark.protocol.acknowledgement.packing import packed, unpacked
from pulsar_spark.protocol.delays.delays import DUE_BASE, is_virtual, virtual


@pytest.mark.parametrize("seed", range(20))
def test_packed_positions_come_back_in_their_order(seed):
    dice = np.random.default_rng(seed)
    positions = dice.integers(0, 1 << dice.integers(1, 61), size=dice.integers(0, 2_000))
    if seed % 2:
        positions.sort()
    assert unpacked(packed(positions)).tolist() == positions.tolist()


@pytest.mark.parametrize("positions", [[], [0], [63], [64], [DUE_BASE - 1], [DUE_BASE - 1, 0, DUE_BASE - 1], [5, 5, 5]])
def test_packed_positions_at_the_borders_of_a_byte(positions):
    assert unpacked(packed(np.array(positions, np.int64))).tolist() == positions


def test_positions_that_adjoin_take_a_byte_each():
    assert len(packed(np.arange(10**12, 10**12 + 100_000))) < 100_010


def test_no_number_is_the_position_of_an_entry():
    assert not is_virtual(DUE_BASE - 1) and is_virtual(virtual(0))
    assert virtual(1 << 59) < 1 << 62, "and all fit a long"
