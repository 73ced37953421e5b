"""The shipped plan against its twin without Spark, on the rows of many cursors."""

from collections import defaultdict

import pyarrow as pa

from pulsar_spark.broker.planning.work import Outcome, Work
from pulsar_spark.testing.plain_planner import by_position
from pulsar_spark.transforms.round import plan_for
from pulsar_spark.transforms.round_inputs import SCHEMA
from tests.support.spark_engine import planner_of

CURSORS_A_PLAN = 150


def assert_spark_plans(spark, planned: list[tuple[list[dict], Outcome]]) -> None:
    """Plan the rows of each cursor with Spark, many cursors at once, and compare with its outcome: those that only
    acknowledge for themselves, so that the shorter plans have them."""
    apart = defaultdict(list)
    for each in planned:
        apart[plan_for(pa.Table.from_pylist(each[0], schema=SCHEMA))].append(each)
    for alike in apart.values():
        for first in range(0, len(alike), CURSORS_A_PLAN):
            _assert_plans(spark, alike[first : first + CURSORS_A_PLAN])


def _assert_plans(spark, several: list[tuple[list[dict], Outcome]]) -> None:
    rows = [dict(row, cursor=number) for number, (cursor_rows, _) in enumerate(several) for row in cursor_rows]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    found = planner_of(spark).run(Work(table, [None] * len(several), []))
    for (cursor_rows, expected), outcome in zip(several, found, strict=True):
        said = [{name: value for name, value in row.items() if value is not None} for row in cursor_rows]
        other = set(by_position(outcome.ranges).values()) ^ set(by_position(expected.ranges).values())
        assert not other, (sorted(other, key=str), said)
        assert sorted(outcome.consumers) == sorted(expected.consumers), said
        assert outcome[1:4] == expected[1:4], said
