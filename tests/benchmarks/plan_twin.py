"""The shipped plan beside its twin in plain Python: from which size on Spark earns its keep.

Both are given the same rows, as Arrow, and give the same outcome: half of the ranges of a cursor are given back, and
they are delivered again. The twin (pulsar_spark.testing.plain_planner) goes position by position; ranges are one entry
long, so it has no more to do than the plan: they break even at some 100,000 rows. Where ranges are long the twin takes
as many times more as they hold entries.
"""

import time
from collections.abc import Iterator

from pulsar_spark.broker.planning.work import PlanInputs, Work
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.testing.plain_planner import PlainPlanner
from tests.benchmarks.bench import Bench, in_turns
from tests.benchmarks.figures import SECONDS, Budget, Figure

FAMILY = "plan"
RANGES = (10, 1_000, 100_000)
BUDGET_FROM = 10_000
SECONDS_A_ROW = 25e-6
NOW = 10**15


def measure(bench: Bench) -> Iterator[Figure]:
    for ranges in RANGES[: bench.few(2, 3)]:
        bench.say(f"the plan and its twin, {ranges:,} ranges")
        work = _work(ranges)
        rows = work.rows.num_rows
        repeats = 3 if ranges >= BUDGET_FROM else 20
        shipped, twin = in_turns(repeats, _timed(bench.planner, work), _timed(PlainPlanner(), work), warm_up=3)
        yield Figure(
            FAMILY,
            f"plan: {ranges:,} ranges, {rows:,} rows",
            SECONDS,
            shipped,
            other="its twin in plain Python",
            other_runs=twin,
            budget=Budget(rows * SECONDS_A_ROW) if ranges >= BUDGET_FROM else None,
        )


def _timed(planner, work: Work):
    def run() -> float:
        began = time.perf_counter()
        planner.run(work)
        return time.perf_counter() - began

    return run


def _work(ranges: int) -> Work:
    rows = PlanInputs()
    one_cursor(rows, 0, ranges)
    return Work(rows.table(), [None], [])


def one_cursor(rows: PlanInputs, cursor: int, ranges: int) -> None:
    """Rows of a Shared cursor with so many ranges pending at a consumer, every second of which is given back."""
    no_limit = dict(limit=0, unacked_elsewhere=0, is_blocked=False, permits=10**9)
    nobody = dict(is_single_active=False, max_redeliver_count=0, left=[], redelivered=[])
    now = dict(round=7, now=NOW, wall=NOW, read_position=ranges)
    rows.add("cursor", cursor, first=0, last=0, **nobody, **no_limit, **now)
    for at in range(ranges):
        known = (at, at, PENDING, "c", 3 + at % 2, 0, None, None, 1, None, None)
        rows.extend("range", cursor, [known if at % 2 else (*known, None, None, NOW - 5)])
    for lap in (0, 1):
        rows.add("consumer", cursor, first=lap, last=lap, consumer_id="c", lap=lap, peers=1, **no_limit)
