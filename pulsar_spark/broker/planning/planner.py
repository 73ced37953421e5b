"""Executes the plan of a round, or a shorter one if it only acknowledges (transforms.round).

A **prepared plan** is built once and reads a file that each round replaces. Spark's plan holds only its path and
length, which stay (see storage.store.padded), so a round costs no planning. This needs one partition, without exchange
and broadcast, which would keep their first result.

Small rounds are interpreted. From :data:`COMPILED_FROM` rows on, plans compiled in the background are used. Each way
has a session, from which Spark takes the choice.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise, repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.broker.planning.work import ConsumerOutcome, Outcome, Rows, Work
from pulsar_spark.errors import InvalidConfiguration, shown
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, Range
from pulsar_spark.storage.delta.python_rows import uncollected, values_of
from pulsar_spark.storage.session import local_frame, side_session
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.padded import replace_padded, to_parquet
from pulsar_spark.transforms.round import PLANS, Plan, plan_for, plan_round, plan_whole_acknowledgements
from pulsar_spark.transforms.round_inputs import SCHEMA, STATE

LENGTHS = (1 << 16, 1 << 20, 1 << 24, 1 << 27)
"""Bytes of the files that prepared plans read."""

END_SECONDS = 20.0
COMPILE_AFTER_SECONDS, ENVIRONMENT = 15.0, "PULSAR_SPARK_COMPILE_AFTER_SECONDS"
"""Seconds after its start at which a broker prepares the compiled plans, unless a round needs them earlier. The
environment variable sets another number, so that a short-lived broker need not prepare them."""
CALM_SECONDS, PATIENCE_SECONDS = 1.0, 300.0
"""Background preparation starts once no round was planned for the first; the compiled plans, needed at any moment, wait
for the second at most."""
RUN_IN, PAUSE_SECONDS = 240, 0.02
"""How often each compiled plan is run in, on enough rows to be worth it, and the pause left for rounds in between."""

COMPILED_FROM = 500
"""Rows from which a compiled plan is quicker than an interpreted one."""

AT_START = (plan_round, plan_whole_acknowledgements)
_INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
_COMPILED = {"spark.sql.codegen.factoryMode": "FALLBACK", "spark.sql.codegen.wholeStage": "true"}
log = logging.getLogger(__name__)


class Planner:
    """Plans rounds on one Spark application; *folder* holds plans' files."""

    def __init__(self, spark: SparkSession, folder: Path):
        self.folder = folder
        self._interpreted = _Mode(spark, folder / "interpreted", _INTERPRETED)
        self._compiled = _Mode(spark, folder / "compiled", _COMPILED)
        self._is_compiled, self._is_compiling = threading.Event(), threading.Lock()
        self._is_ending, self._is_urgent = threading.Event(), threading.Event()
        self._calm = Calm()

    def run(self, work: Work) -> list[Outcome]:
        with self._calm.interrupted():
            return self._run(work)

    def _run(self, work: Work) -> list[Outcome]:
        plan = plan_for(work.rows)
        mode = self._interpreted
        if work.rows.num_rows >= COMPILED_FROM:
            if self._is_compiled.is_set():
                mode = self._compiled
            else:
                self.compile_soon()
        return outcomes(mode.run(work.rows, plan), len(work.cursors))

    def warm_up(self) -> None:
        """Build and run the small plans that a start needs."""
        self._interpreted.warm_up(AT_START)

    def compile_soon(self, after_seconds: float = 0.0) -> None:
        """Prepare the compiled plans in the background: at once, or at the first calm moment after *after_seconds*."""

        def compile_later() -> None:
            if self._is_ending.wait(after_seconds):
                return
            if after_seconds:
                self._calm.wait(self._is_urgent, PATIENCE_SECONDS)
            if not self._is_ending.is_set() and not self._is_compiled.is_set():
                self.compile()

        if not after_seconds:
            self._is_urgent.set()
        if not self._is_compiling.locked():
            threading.Thread(target=compile_later, name="pulsar-spark-compile", daemon=True).start()

    def end(self) -> None:
        """Wait for background work, so that the folder can be deleted."""
        self._is_ending.set()
        self._is_urgent.set()
        if self._is_compiling.acquire(timeout=END_SECONDS):
            self._is_compiling.release()

    def compile(self, *, with_run_in: bool = True) -> None:
        """Prepare the compiled plans, and run them in if *with_run_in*."""
        if not self._is_compiling.acquire(blocking=False):
            return
        try:
            for plan in PLANS:
                if self._is_ending.is_set():
                    return
                self._compiled.warm_up([plan])
            self._is_compiled.set()
            if with_run_in:
                self._run_in()
        except Exception:  # folder removed, Spark ending...: rounds are interpreted, and the next large one tries again
            log.debug("the compiled plans could not be prepared", exc_info=True)
        finally:
            self._is_compiling.release()

    def _run_in(self) -> None:
        apart, rows = _Mode(self._compiled.application, self.folder / "run-in", _COMPILED), _acknowledged_one_by_one()
        for plan in PLANS * RUN_IN:
            self._calm.wait(self._is_ending)
            if self._is_ending.wait(PAUSE_SECONDS):
                return
            apart.run(rows, plan)


class Calm:
    """How long no round has been planned; *clock* counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._planning, self._since = clock, 0, float("-inf")

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Marks that a round is being planned."""
        self._planning += 1
        try:
            yield
        finally:
            self._since = self._clock()
            self._planning -= 1

    def wait(self, ended: threading.Event, most_seconds: float = float("inf")) -> None:
        """Wait for :data:`CALM_SECONDS` of calm, *most_seconds*, or *ended*."""
        until = self._clock() + most_seconds
        while True:
            now = self._clock()
            calm_at = now + CALM_SECONDS if self._planning else self._since + CALM_SECONDS
            if now >= min(calm_at, until) or ended.wait(min(calm_at, until) - now):
                return


def compile_after_seconds() -> float:
    """:data:`COMPILE_AFTER_SECONDS`, or the environment's; :class:`InvalidConfiguration` if no number."""
    seconds = os.environ.get(ENVIRONMENT, str(COMPILE_AFTER_SECONDS))
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", seconds):
        raise InvalidConfiguration(f"{ENVIRONMENT} {shown(seconds)}: give a number of seconds below a million")
    return float(seconds)


class _Mode:
    """Prepared plans, by file length, in a session of their own."""

    def __init__(self, spark: SparkSession, folder: Path, settings: dict[str, str]):
        self.application, self._folder, self._settings = spark, folder, settings
        self._prepared: dict[tuple[Plan, int], DataFrame] = {}

    @cached_property
    def _spark(self) -> SparkSession:
        return side_session(self.application, _of(self.application) | self._settings)

    def warm_up(self, plans: Sequence[Plan]) -> None:
        for plan in plans:
            self.run(SCHEMA.empty_table(), plan)

    def run(self, rows: pa.Table, plan: Plan) -> pa.Table:
        parquet = to_parquet(rows)
        length = next((length for length in LENGTHS if len(parquet) <= length), None)
        if length is None:
            return plan(local_frame(self._spark, rows).coalesce(1)).toArrow()
        path = self._folder / f"inputs-{length}.parquet"
        check_there(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_padded(path, parquet, length)
        if (plan, length) not in self._prepared:
            leaf = self._spark.read.schema(from_arrow_schema(SCHEMA)).parquet(str(path))
            self._prepared[plan, length] = plan(leaf.coalesce(1))
        return self._prepared[plan, length].toArrow()


def _of(spark: SparkSession) -> dict[str, str]:
    """Settings that a sibling session does not inherit."""
    names = ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")
    return {name: spark.conf.get(name) or "" for name in names}


def _acknowledged_one_by_one() -> pa.Table:
    """Rows of a round that acknowledges every second entry of a Shared cursor."""
    rows, nothing = Rows(), dict(limit=0, unacked_elsewhere=0, is_blocked=False, permits=0)
    rows.add("cursor", 0, first=0, last=0, max_redeliver_count=0, left=[], redelivered=[], now=0, **nothing)
    pending = [Range(at, at, PENDING, "c", 0, 0, None, None, 1) for at in range(2 * COMPILED_FROM)]
    rows.extend("range", 0, pending)
    rows.extend("ack", 0, [range_[:2] for range_ in pending[::2]])
    rows.add("consumer", 0, first=0, last=0, consumer_id="c", lap=0, **nothing)
    return rows.table()


@uncollected()
def outcomes(result: pa.Table, cursors: int) -> list[Outcome]:
    """A plan's result (transforms.round_inputs.RESULT) by cursor, with ranges by position."""
    kinds = result["kind"].to_numpy()
    found = [Outcome(ranges, False, 0, 0, []) for ranges in _ranges(result.filter(kinds == "range"), cursors)]
    for kind, columns in (("consumer", ConsumerOutcome._fields), ("cursor", Outcome._fields[1:4])):
        rows = result.filter(kinds == kind).sort_by([("cursor", "ascending"), ("first", "ascending")])
        for number, *row in zip(*(values_of(rows[name]) for name in ("cursor", *columns))):
            if kind == "consumer":
                found[number].consumers.append(ConsumerOutcome(*row))
            else:
                found[number] = found[number]._replace(**dict(zip(columns, row)))
    return found


def _ranges(rows: pa.Table, cursors: int) -> list[list[Range]]:
    rows = rows.sort_by([("cursor", "ascending"), ("first", "ascending")])
    values = [values_of(rows[name]) for name in STATE]
    if rows["ack_set"].null_count < rows.num_rows:
        at = STATE.index("ack_set")
        values[at] = [None if words is None else tuple(words) for words in values[at]]
    ranges = list(map(Range._make, zip(*values, repeat(None))))  # half the time of Range(*row)
    ends = np.searchsorted(rows["cursor"].to_numpy(), np.arange(cursors), "right").tolist()
    return [ranges[first:end] for first, end in pairwise([0, *ends])]
