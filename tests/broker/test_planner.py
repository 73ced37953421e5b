"""Large work is planned by compiled plans, work that only acknowledges by the shorter one."""

import threading

import pytest

from pulsar_spark.broker.planning import planner as planner_module
from pulsar_spark.broker.planning.planner import CALM_SECONDS, Calm, Planner
from pulsar_spark.broker.planning.work import Rows, Work
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, Range
from pulsar_spark.transforms.round import PLANS, plan_acknowledgements, plan_for, plan_whole_acknowledgements
from tests.benchmarks.plan_twin import NOW, one_cursor
from tests.support.plain_planner import PlainPlanner, by_position
from tests.support.spark_engine import planner_of
from tests.support.waiting import eventually


def work_of(*ranges: int) -> Work:
    """A cursor for each number of ranges."""
    rows = Rows()
    for cursor, count in enumerate(ranges):
        one_cursor(rows, cursor, count)
    return Work(rows.table(), list(ranges), list(ranges))


def test_compiled_plans_say_what_the_twin_says(spark, monkeypatch):
    monkeypatch.setattr(planner_module, "COMPILED_FROM", 1)
    monkeypatch.setattr(planner_module, "RUN_IN", 1)
    planner = planner_of(spark)
    eventually(lambda: planner.compile() or planner._is_compiled.is_set(), 120)  # it may be under way already
    for ranges in ((3, 40, 7, 12, 1), (4, 4), (30, 2)):
        work = work_of(*ranges)
        for found, expected in zip(planner.run(work), PlainPlanner().run(work), strict=True):
            assert (by_position(found.ranges), found[1:]) == (by_position(expected.ranges), expected[1:])


def test_compiled_plans_are_run_in_on_rows_of_a_round_as_large_as_theirs(spark, monkeypatch, tmp_path):
    rows = planner_module._acknowledged_one_by_one()
    assert plan_for(rows) is plan_whole_acknowledgements and rows.num_rows > planner_module.COMPILED_FROM
    # a planner of its own: the one that tests share may be running in, too, on rows of a test that set COMPILED_FROM
    planner, run, real = Planner(spark.newSession(), tmp_path), [], planner_module._Mode.run

    def recorded(mode, rows, plan):
        found = real(mode, rows, plan)
        if mode._folder == tmp_path / "run-in":  # other tests may run rounds meanwhile
            run.append((plan, found.num_rows))
        return found

    monkeypatch.setattr(planner_module, "RUN_IN", 1)
    monkeypatch.setattr(planner_module._Mode, "run", recorded)
    planner._run_in()
    assert dict(run) == dict.fromkeys(PLANS, 2 * planner_module.COMPILED_FROM + 2)


def test_who_ends_waits_for_the_plan_that_is_being_compiled_and_no_other(monkeypatch, tmp_path):
    planner, run = Planner(None, tmp_path), []
    monkeypatch.setattr(
        planner_module._Mode, "run", lambda mode, rows, plan: run.append(plan) or planner._is_ending.set()
    )
    planner.compile()
    assert run == [PLANS[0]] and not planner._is_compiled.is_set()


class Ended:
    """An event that nobody sets; waiting for it moves the clock, and may *begin* something."""

    def __init__(self, begin=lambda: None):
        self.now, self.begin = 100.0, begin

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        self.begin()
        return False


def test_what_can_wait_does_so_until_rounds_pause():
    ended = Ended()
    calm = Calm(lambda: ended.now)
    calm.wait(ended)
    assert ended.now == 100.0, "nothing was planned yet"
    with calm.interrupted():
        ended.now += 7
    ended.now += 0.25
    calm.wait(ended)
    assert ended.now == 107 + CALM_SECONDS, "a round was over a quarter of a second before"


def test_a_round_under_way_is_no_calm_moment():
    ended = Ended()
    calm = Calm(lambda: ended.now)
    with calm.interrupted():
        calm.wait(ended, 5)
    assert ended.now == 105.0, "patience ended"


def test_rounds_without_a_pause_put_off_what_can_wait_as_long_as_patience_lasts():
    def round_now():
        with calm.interrupted():
            pass

    ended = Ended(round_now)
    calm = Calm(lambda: ended.now)
    round_now()
    calm.wait(ended, 30.5)
    assert ended.now == 130.5


def test_a_round_that_needs_compiled_plans_does_not_wait_for_calm(monkeypatch, tmp_path):
    planner, compiled = Planner(None, tmp_path), threading.Event()
    monkeypatch.setattr(planner, "compile", compiled.set)
    with planner._calm.interrupted():
        planner.compile_soon(0.01)
        assert not compiled.wait(0.2)
        planner.compile_soon()
        assert compiled.wait(60)


@pytest.mark.parametrize("said, seconds", [(None, planner_module.COMPILE_AFTER_SECONDS), ("0", 0.0), ("2.5", 2.5)])
def test_the_environment_says_when_plans_are_compiled(monkeypatch, said, seconds):
    monkeypatch.delenv(planner_module.ENVIRONMENT)
    if said is not None:
        monkeypatch.setenv(planner_module.ENVIRONMENT, said)
    assert planner_module.compile_after_seconds() == seconds


@pytest.mark.parametrize("said", ["soon", "", "-1", "nan", "9" * 30])
def test_an_environment_that_says_no_number_is_refused(monkeypatch, said):
    monkeypatch.setenv(planner_module.ENVIRONMENT, said)
    with pytest.raises(InvalidConfiguration, match="give a number of seconds"):
        planner_module.compile_after_seconds()


@pytest.mark.parametrize(
    "left_of_batches, plan", [([(13, 13, [1]), (14, 14, [])], plan_acknowledgements), ([], plan_whole_acknowledgements)]
)
def test_work_that_only_acknowledges_is_planned_by_a_shorter_plan(spark, left_of_batches, plan):
    limits = dict(limit=9, unacked_elsewhere=0, is_blocked=True, permits=5)
    nobody = dict(is_single_active=False, max_redeliver_count=1, left=[], redelivered=[], read_position=20)
    rows = Rows()
    rows.add("cursor", 0, first=0, last=0, round=7, now=NOW, wall=NOW, **nobody, **limits)
    rows.extend("range", 0, [Range(at, at + 4, PENDING, "c", 3, 0, None, None, 2) for at in range(0, 20, 5)])
    rows.extend("ack", 0, [(0, 6), (8, 12), (19, 25)])
    rows.extend("ack_set", 0, left_of_batches)
    rows.add("consumer", 0, first=0, last=0, consumer_id="c", lap=0, peers=1, **limits)
    work = Work(rows.table(), ["c"], [])
    (found,), (expected,) = planner_of(spark).run(work), PlainPlanner().run(work)
    assert (by_position(found.ranges), found[1:]) == (by_position(expected.ranges), expected[1:])
    assert plan_for(work.rows) is plan
