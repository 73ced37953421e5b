"""Which delayed entries are picked when more is due than is asked for: golden i1 (Pulsar's bucket tracker) through real
rounds (0.21, 5.3).

The tracker is told of entries while they wait, so here a first consumer meets them all, gets none and leaves. Each
``get`` of the golden file is then a consumer of its own with so many permits, whose entries are acknowledged. Left out:
entries the tracker did not keep because they were due, what comes behind a restart (it forgets, we do not), and the
case with the tracker's early tick (0.21).
"""

from itertools import takewhile

import pyarrow as pa
import pytest

from pulsar_spark.broker.planning.work import Work
from pulsar_spark.testing.plain_planner import PlainPlanner, by_position
from pulsar_spark.transforms.round_inputs import SCHEMA
from tests.protocol.golden import cases, named
from tests.support.requests import On
from tests.support.spark_engine import new_engine, planner_of

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
CASES = [case for case in cases("i1_bucket_delayed") if case["input"]["config"]["strict"]]


def picks(case: dict) -> list[tuple[int, int, list]]:
    """(clock, most, entries picked) of each ``get``."""
    clock, found = 0, []
    steps = zip(case["input"]["ops"], case["expected"]["after_each_op"], strict=True)
    for operation, expected in takewhile(lambda step: step[0][0] != "restart", steps):
        if operation[0] == "clock":
            clock = operation[1]
        elif operation[0] == "get":
            found.append((clock, operation[1], [tuple(entry) for entry in expected["result"]]))
    return found


def delayed_entries(case: dict) -> dict[tuple[int, int], int]:
    """Deliver time of each entry that was kept, by ledger and entry; the first time it was told."""
    kept: dict[tuple[int, int], int] = {}
    for operation, expected in zip(case["input"]["ops"], case["expected"]["after_each_op"], strict=True):
        if operation[0] == "add" and expected["result"]:
            kept.setdefault((operation[1], operation[2]), operation[3])
    return dict(sorted(kept.items()))


def play(case: dict, root) -> list[list[tuple[int, int]]]:
    """What each ``get`` picks."""
    engine, entries = new_engine(None, root), delayed_entries(case)
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1] * len(entries), deliver_at_ms=list(entries.values()))
    assert engine.round([ON.subscribe("first"), ON.flow("first", 1000)], 0)["deliveries"] == []
    engine.round([ON.close("first")], 0)
    places, found = list(entries), []
    for number, (clock, most, _) in enumerate(picks(case)):
        taker = f"taker-{number}"
        deliveries = engine.round([ON.subscribe(taker), ON.flow(taker, most)], clock)["deliveries"]
        found.append(sorted(places[delivery.position] for delivery in deliveries))
        engine.round([*(ON.ack(delivery.position) for delivery in deliveries), ON.close(taker)], clock)
    return found


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_entries_picked_are_those_due_first(case, tmp_path):
    assert play(case, tmp_path) == [picked for _, _, picked in picks(case)]


def test_spark_picks_what_its_twin_picks(spark, tmp_path, monkeypatch):
    """All rounds of all cases, as cursors of one plan."""
    planned, plan = [], PlainPlanner.run

    def plan_and_note(self, work):
        result = plan(self, work)
        planned.extend(
            ([row for row in work.rows.to_pylist() if row["cursor"] == number], outcome.ranges)
            for number, outcome in enumerate(result)
        )
        return result

    monkeypatch.setattr(PlainPlanner, "run", plan_and_note)
    for number, case in enumerate(CASES):
        play(case, tmp_path / str(number))
    rows = [dict(row, cursor=number) for number, (cursor_rows, _) in enumerate(planned) for row in cursor_rows]
    work = Work(pa.Table.from_pylist(rows, schema=SCHEMA), [None] * len(planned), [])
    for outcome, (_, expected) in zip(planner_of(spark).run(work), planned, strict=True):
        assert by_position(outcome.ranges) == by_position(expected)
