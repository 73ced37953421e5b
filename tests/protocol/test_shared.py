"""The dispatcher's list and its picks on Shared: golden f."""

import pytest

from pulsar_spark.protocol.failover import Consumer
from pulsar_spark.protocol.shared import RoundRobin, dispatch_order
from tests.protocol.golden import cases


@pytest.mark.parametrize(
    "case",
    cases("f_next_consumer"),
    ids=lambda case: " ".join(
        f"{c['id']}:{c['priority']}x{c['permits']}" for c in case["input"]["consumers_in_join_order"]
    ),
)
def test_picks_by_priority_then_in_turn(case):
    joined = case["input"]["consumers_in_join_order"]
    consumers = [Consumer(c["id"], c["id"], c["priority"], place) for place, c in enumerate(joined)]
    permits = {c["id"]: c["permits"] for c in joined}
    turns = RoundRobin(consumers)

    def picks() -> list[str | None]:
        picked = []
        while not picked or picked[-1] is not None:
            found = turns.pick(lambda consumer: permits[consumer.consumer_id] > 0)
            picked.append(found and found.consumer_id)
            if found:
                permits[found.consumer_id] -= 1
        return picked

    assert [c.consumer_id for c in dispatch_order(consumers)] == case["expected"]["list_order"]
    assert picks() == case["expected"]["picks"]
    for name in permits:
        permits[name] += 2
    assert picks() == case["expected"]["picks_after_refill"]
