"""The owners of many hashes at once: the same as one by one."""

import random

import numpy as np
import pytest

from pulsar_spark.protocol.keys.hash_ranges import NOBODY, Owners
from pulsar_spark.protocol.keys.selectors import AutoSplit, ConsistentHashing, ConsistentHashing4, Member, Sticky
from pulsar_spark.protocol.keys.sticky_key import MAX_HASH
from tests.support.hash_owners import select

RANGES = {"a": ((0, 99),), "b": ((200, 65535),), "c": ((110, 120), (130, 140))}


@pytest.mark.parametrize("selector", [AutoSplit(), ConsistentHashing(), ConsistentHashing4(), Sticky()], ids=repr)
def test_the_owner_of_each_hash(selector):
    draw = random.Random(5)
    hashes = [0, 1, MAX_HASH, *(draw.randrange(MAX_HASH + 1) for _ in range(500)), *range(90, 215)]
    for consumer_id, name in [("a", "same"), ("b", "same"), ("c", "other")]:
        selector = selector.joined(Member(consumer_id, name, RANGES[consumer_id]))
        owners = Owners(selector.owned(), selector.axis)
        names = [*owners.consumers, None]
        found = [names[number] for number in owners.of(np.array(hashes, np.int32))]
        assert found == [select(selector, hashed) for hashed in hashes]


def test_without_consumers_nobody_owns_anything():
    owners = Owners([], AutoSplit().axis)
    assert owners.of(np.array([0, 5], np.int32)).tolist() == [NOBODY, NOBODY] and owners.number("a") == NOBODY
