"""Large work is planned by compiled plans, work that only acknowledges by the shorter one."""

import threading

import pytest

from pulsar_spark.broker.planning import planner as planner_module
from pulsar_spark.broker.planning.planner import LENGTHS, Planner
from pulsar_spark.broker.planning.work import PlanInputs, Work
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, UNREAD
from pulsar_spark.testing.plain_planner import PlainPlanner, by_position
from pulsar_spark.transforms.round import PLANS, plan_acknowledgements, plan_for, plan_round
from pulsar_spark.transforms.round_inputs import RESULT
from tests.benchmarks.plan_twin import NOW, one_cursor
from tests.support.spark_engine import planner_of
from tests.support.waiting import eventually


def work_of(*ranges: int) -> Work:
    """A cursor for each number of ranges."""
    rows = PlanInputs()
    for cursor, count in enumerate(ranges):
        one_cursor(rows, cursor, count)
    return Work(rows.table(), list(ranges), list(ranges))


def test_compiled_plans_say_what_the_twin_says(spark, monkeypatch):
    monkeypatch.setattr(planner_module, "COMPILED_FROM", 1)
    planner = planner_of(spark)
    eventually(lambda: planner.compile() or planner._is_compiled.is_set(), 120)  # it may be under way already
    for ranges in ((3, 40, 7, 12, 1), (4, 4), (30, 2)):
        work = work_of(*ranges)
        for found, expected in zip(planner.run(work), PlainPlanner().run(work), strict=True):
            assert (by_position(found.ranges), found[1:]) == (by_position(expected.ranges), expected[1:])


@pytest.mark.parametrize("plan, most", [(plan_round, 20), (plan_acknowledgements, 7)])
def test_a_plan_has_no_more_operators_than_before(spark, plan, most):
    """A number here may only shrink: a round pays for each operator, however few its rows are."""
    mode = planner_of(spark)._interpreted
    mode.warm_up([plan])
    (frame,) = (frame for (each, length), frame in mode._prepared.items() if each is plan and length == LENGTHS[0])
    operators = frame._jdf.queryExecution().executedPlan().toString().strip().splitlines()
    assert len(operators) == most, operators


def test_who_ends_waits_for_the_plan_that_is_being_compiled_and_no_other(monkeypatch, tmp_path):
    planner, run = Planner(None, tmp_path), []
    monkeypatch.setattr(
        planner_module._Mode, "run", lambda mode, rows, plan: run.append(plan) or planner._is_ending.set()
    )
    planner.compile()
    assert run == [PLANS[0]] and not planner._is_compiled.is_set()


def test_the_first_large_round_has_the_compiled_plans_prepared(monkeypatch, tmp_path):
    planner, compiled = Planner(None, tmp_path), threading.Event()
    monkeypatch.setattr(planner, "compile", compiled.set)
    monkeypatch.setattr(planner_module._Mode, "run", lambda mode, rows, plan: RESULT.empty_table())
    planner.run(work_of(3))
    assert not compiled.is_set()
    monkeypatch.setattr(planner_module, "COMPILED_FROM", 1)
    planner.run(work_of(3))
    assert compiled.wait(60)


def test_work_that_only_acknowledges_is_planned_by_a_shorter_plan(spark):
    limits = dict(limit=9, unacked_elsewhere=0, is_blocked=True, permits=5)
    nobody = dict(is_single_active=False, max_redeliver_count=1, left=[], redelivered=[], read_position=20)
    rows = PlanInputs()
    rows.add("cursor", 0, first=0, last=0, round=7, now=NOW, wall=NOW, **nobody, **limits)
    pending = dict(status=PENDING, consumer_id="c", delivery_round=3, redelivery_count=0, batch_size=2)
    rows.add("range", 0, first=0, last=6, is_acked=True, **pending)
    rows.add("range", 0, first=7, last=12, **pending)
    rows.add("range", 0, first=13, last=13, left_of_batch=[1], **pending)
    rows.add("range", 0, first=14, last=14, left_of_batch=[], **pending)
    rows.add("range", 0, first=15, last=25, is_acked=True, status=UNREAD)
    rows.add("consumer", 0, first=0, last=0, consumer_id="c", lap=0, peers=1, **limits)
    work = Work(rows.table(), ["c"], [])
    (found,), (expected,) = planner_of(spark).run(work), PlainPlanner().run(work)
    assert (by_position(found.ranges), found[1:]) == (by_position(expected.ranges), expected[1:])
    assert plan_for(work.rows) is plan_acknowledgements
