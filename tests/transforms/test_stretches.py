"""Which numbers lie in stretches of an axis, against plain comparison."""

import random

import numpy as np
import pytest

from pulsar_spark.transforms.stretches import Stretches

SIZES = (1, 7, 4096, 4097, 65_536, 2**31)


def drawn(dice: random.Random, size: int) -> list[tuple[int, int]]:
    """Up to twenty stretches, some of one place, some that adjoin, at the ends of the axis too."""
    cuts = sorted({0, size, *(dice.randrange(size + 1) for _ in range(dice.randrange(20)))})
    return [(first, last - 1) for first, last in zip(cuts, cuts[1:]) if dice.random() < 0.6]


@pytest.mark.parametrize("size", SIZES)
def test_a_number_is_in_a_stretch_or_not(spark, size):
    dice = random.Random(size)
    frames, wanted = [], []
    for _ in range(8):
        stretches = drawn(dice, size)
        borders = {each + by for pair in stretches for each in pair for by in (-1, 0, 1)}
        places = sorted({min(max(place, 0), size - 1) for place in borders | {0, size - 1, dice.randrange(size)}})
        firsts, lasts = (np.array(each, np.int64) for each in (zip(*stretches) if stretches else ((), ())))
        holds = Stretches(size, firsts, lasts).holds
        frame = spark.createDataFrame([(place,) for place in places], "place long")
        frames.append([row[0] for row in frame.select(holds(frame["place"])).collect()])
        wanted.append([any(first <= place <= last for first, last in stretches) for place in places])
    assert frames == wanted and any(map(any, wanted))
