"""The dispatcher's list, and whose turn it is on Shared: golden f.

Pulsar picks for one entry, or one read, at a time; we take a consumer's picks of a level together (0.28). So what must
agree is the list, how much everybody gets, and that no level is served before a better one.
"""

import pytest

from pulsar_spark.protocol.subscriptions.failover import Consumer
from pulsar_spark.protocol.subscriptions.shared import dispatch_order, turns
from tests.protocol.golden import cases


@pytest.mark.parametrize(
    "case",
    cases("f_next_consumer"),
    ids=lambda case: " ".join(
        f"{c['id']}:{c['priority']}x{c['permits']}" for c in case["input"]["consumers_in_join_order"]
    ),
)
def test_turns_come_by_priority_and_reach_everybody_with_permits(case):
    joined = case["input"]["consumers_in_join_order"]
    consumers = [Consumer(c["id"], c["id"], c["priority"], place) for place, c in enumerate(joined)]
    permits, levels = ({c["id"]: c[name] for c in joined} for name in ("permits", "priority"))

    def served(start: int) -> list[tuple[int, str]]:
        """Level and consumer of each entry dealt out, as far as the permits go; the turns of a level in any order."""
        found = []
        for turn in turns(consumers, start=start):
            name = turn.consumer.consumer_id
            found += [(levels[name], name)] * permits[name]
            permits[name] = 0
        assert [level for level, _ in found] == sorted(level for level, _ in found)
        return sorted(found)

    def picked(picks: list[str | None]) -> list[tuple[int, str]]:
        return sorted((levels[name], name) for name in picks if name is not None)

    assert [c.consumer_id for c in dispatch_order(consumers)] == case["expected"]["list_order"]
    assert served(0) == picked(case["expected"]["picks"])
    permits = dict.fromkeys(permits, 2)
    assert served(1) == picked(case["expected"]["picks_after_refill"])
