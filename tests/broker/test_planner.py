"""Work planned in two halves, side by side, is planned as at once."""

import pytest

from pulsar_spark.broker import planner as planner_module
from pulsar_spark.broker.planner import _middle
from pulsar_spark.broker.work import Rows, Work
from tests.benchmarks.plan_twin import one_cursor
from tests.client.waiting import eventually
from tests.plain_planner import PlainPlanner
from tests.spark_engine import planner_of


def work_of(*ranges: int) -> Work:
    """A cursor for each number of ranges."""
    rows = Rows()
    for cursor, count in enumerate(ranges):
        one_cursor(rows, cursor, count)
    return Work(rows.table(), list(ranges), list(ranges))


@pytest.mark.parametrize(
    "ranges, middle", [((5, 5), 1), ((50, 1, 1), 1), ((1, 1, 50), 2), ((5, 5, 5, 5), 2), ((1, 50), 1)]
)
def test_halves_are_of_like_size_and_none_is_empty(ranges, middle):
    assert _middle(work_of(*ranges)) == middle


def test_halves_side_by_side_are_planned_as_at_once(spark, monkeypatch):
    monkeypatch.setattr(planner_module, "COMPILED_FROM", 1)
    monkeypatch.setattr(planner_module, "HALVED_FROM", 1)
    planner = planner_of(spark)
    eventually(lambda: planner.compile() or planner._is_compiled.is_set(), 120)  # it may be under way already
    halved, run_halves = [], planner._run_halves
    monkeypatch.setattr(planner, "_run_halves", lambda work: halved.append(work) or run_halves(work))
    for ranges in ((3, 40, 7, 12, 1), (4, 4), (30, 2)):
        work = work_of(*ranges)
        for found, expected in zip(planner.run(work), PlainPlanner().run(work), strict=True):
            assert (sorted(found.ranges), found[1:]) == (sorted(expected.ranges), expected[1:])
    assert len(halved) == 3
