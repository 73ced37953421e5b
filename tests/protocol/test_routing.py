"""Routing: golden g1 (by key), golden g2 (without), and what a C++ client's default did on Pulsar 4.0.8."""

import pytest

from pulsar_spark.protocol.keys.sticky_key import boost_hash
from pulsar_spark.protocol.topics.routing import (
    HashingScheme,
    RoundRobinRouter,
    SinglePartitionRouter,
    key_hash,
    partition_for_key,
)
from tests.protocol.golden import cases

CPP_DEFAULT_OF_FOUR = "2102021212302211201013021002113120311120"
"""Partition of key-0, key-1 ... of a topic of four partitions, recorded with the ``pulsar`` package 3.13.0 on a Pulsar
4.0.8 standalone."""


@pytest.mark.parametrize("case", cases("g1_key_routing"), ids=lambda case: case["input"]["hashed_text"] or "empty")
def test_partition_for_a_key(case):
    text = case["input"]["hashed_text"]
    for name, expected in case["expected"].items():
        scheme = HashingScheme[name]
        assert key_hash(text, scheme) == expected["hash"]
        assert [partition_for_key(text, n, scheme) for n in case["input"]["partition_counts"]] == expected[
            "partition_by_count"
        ]


def test_partition_for_a_key_as_the_cpp_client_has_it():
    found = [partition_for_key(f"key-{i}", 4) for i in range(len(CPP_DEFAULT_OF_FOUR))]
    assert "".join(map(str, found)) == CPP_DEFAULT_OF_FOUR


@pytest.mark.parametrize("length", range(20))
def test_boost_hash_tells_keys_of_any_length_apart(length):
    assert len({boost_hash(b"\0" * n) for n in range(length + 1)}) == length + 1
    assert 0 <= boost_hash(b"\xff" * length) < 2**31


@pytest.mark.parametrize(
    "case",
    [case for case in cases("g2_keyless_routing") if not case["input"].get("batching") and "start" in case["input"]],
)
def test_round_robin_moves_with_every_message_without_a_key(case):
    given = case["input"]
    router = RoundRobinRouter(start=given["start"], scheme=HashingScheme.JavaStringHash)
    assert [router.partition(key, given["partitions"]) for key in given["keys"]] == case["expected"]["partitions"]


@pytest.mark.parametrize("case", [case for case in cases("g2_keyless_routing") if case["input"].get("batching")])
def test_round_robin_of_a_batching_producer_moves_with_the_clock(case):
    given, clock = case["input"], iter(case["input"]["clock_ms"])
    router = RoundRobinRouter(start=given["start"], clock_ms=lambda: next(clock), switch_ms=given["switch_ms"])
    assert [router.partition(None, given["partitions"]) for _ in given["clock_ms"]] == case["expected"]["partitions"]


@pytest.mark.parametrize(
    "case", [case for case in cases("g2_keyless_routing") if case["input"].get("router") == "SinglePartition"]
)
def test_single_partition_keeps_to_its_own_but_for_keys(case):
    given = case["input"]
    router = SinglePartitionRouter(given["partition"], scheme=HashingScheme[given["scheme"]])
    assert [router.partition(key, given["partitions"]) for key in given["keys"]] == case["expected"]["partitions"]


def test_every_golden_case_is_used():
    kinds = [("router" in case["input"], case["input"].get("batching")) for case in cases("g2_keyless_routing")]
    assert sorted(map(str, kinds)) == sorted(["(False, False)"] * 3 + ["(False, True)"] * 2 + ["(True, None)"])
