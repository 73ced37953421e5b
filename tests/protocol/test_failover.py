"""The active consumer of Failover: golden e, operation by operation."""

import pytest

from pulsar_spark.protocol.subscriptions.failover import Consumer, active_consumer, sort_consumers
from tests.protocol.golden import cases, named


@pytest.mark.parametrize("case", cases("e_failover"), ids=named)
def test_order_and_active_consumer_after_each_operation(case):
    given, consumers = case["input"], []
    for join_order, (operation, expected) in enumerate(
        zip(given["ops"], case["expected"]["after_each_op"], strict=True)
    ):
        if operation["op"] == "add":
            consumers.append(Consumer(operation["consumer"], operation["name"], operation["priority"], join_order))
        else:
            consumers = [consumer for consumer in consumers if consumer.consumer_id != operation["consumer"]]
        active = active_consumer(consumers, partition_index=given["partition_index"], topic_name=given["topic"])
        assert [consumer.consumer_id for consumer in sort_consumers(consumers)] == expected["order"]
        assert (active and active.consumer_id) == expected["active"]


def test_names_sort_by_utf16_code_unit():
    """An emoji (two surrogates, from U+D800) comes before U+FF21, although its code point is higher; capitals come
    before small letters."""
    names = ["a", "\uff21", "\U0001f680", "B"]
    assert [c.name for c in sort_consumers([Consumer(name, name) for name in names])] == [
        "B",
        "a",
        "\U0001f680",
        "\uff21",
    ]


def test_one_name_keeps_the_order_of_joining():
    twice = [Consumer("second", "n", 0, 1), Consumer("first", "n", 0, 0)]
    assert [c.consumer_id for c in sort_consumers(twice)] == ["first", "second"]
    assert (
        active_consumer(twice, partition_index=-1, topic_name="persistent://public/default/t").consumer_id == "second"
    )


def test_a_partition_s_own_name_counts_as_a_partition():
    both = [Consumer("a", "a"), Consumer("b", "b")]
    assert (
        active_consumer(both, partition_index=-1, topic_name="persistent://public/default/t-partition-5").consumer_id
        == "b"
    )
