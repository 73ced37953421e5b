"""Execute the plan of a round, or a shorter one if it only acknowledges (transforms.round).

A **prepared plan** is built once and reads a file that each round replaces by one of the same length, so a round costs
no planning. Rounds are interpreted; from :data:`COMPILED_FROM` rows on a compiled plan runs, which a thread prepares.
"""

import logging
import threading
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise, repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.broker.planning.work import ConsumerOutcome, Outcome, Work
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.storage.delta.python_rows import uncollected, values_of
from pulsar_spark.storage.session import local_frame, side_session
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.padded import replace_padded, to_parquet
from pulsar_spark.transforms.round import PLANS, Plan, plan_for
from pulsar_spark.transforms.round_inputs import LEAF, SCHEMA, STATE, leaf_of

LENGTHS = (1 << 16, 1 << 20, 1 << 24, 1 << 27)
"""Bytes of the files that prepared plans read."""

END_SECONDS = 20.0

COMPILED_FROM = 4_000
"""Rows from which a compiled plan is quicker than an interpreted one. Few rounds have as many: those of a thousand
subscriptions, or of as many partly acknowledged batches."""

_PLANNED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.collapseProjectAlwaysInline": "true",
    "spark.sql.optimizer.expression.nestedPruning.enabled": "false",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
}
"""An operator more costs as much as a thousand expressions. Spark describes each execution, of which nobody reads
more."""
_INTERPRETED = {
    **_PLANNED,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.subexpressionElimination.enabled": "false",  # the search costs more than a few rows gain
}
_COMPILED = {**_PLANNED, "spark.sql.codegen.factoryMode": "FALLBACK", "spark.sql.codegen.wholeStage": "true"}
log = logging.getLogger(__name__)


class Planner:
    """Plans rounds on one Spark application; *folder* holds plans' files."""

    def __init__(self, spark: SparkSession, folder: Path):
        self.folder = folder
        self._interpreted = _Mode(spark, folder / "interpreted", _INTERPRETED)
        self._compiled = _Mode(spark, folder / "compiled", _COMPILED)
        self._is_compiled, self._is_compiling, self._is_ending = threading.Event(), threading.Lock(), threading.Event()

    def run(self, work: Work) -> list[Outcome]:
        mode = self._interpreted
        if work.rows.num_rows >= COMPILED_FROM:
            if self._is_compiled.is_set():
                mode = self._compiled
            else:
                self._compile_soon()
        return outcomes(mode.run(work.rows, plan_for(work.rows)), len(work.cursors))

    def warm_up(self) -> None:
        self._interpreted.warm_up(PLANS)

    def _compile_soon(self) -> None:
        if not self._is_compiling.locked():
            threading.Thread(target=self.compile, name="pulsar-spark-compile", daemon=True).start()

    def end(self) -> None:
        """Wait for background work, so that the folder can be deleted."""
        self._is_ending.set()
        if self._is_compiling.acquire(timeout=END_SECONDS):
            self._is_compiling.release()

    def compile(self) -> None:
        if not self._is_compiling.acquire(blocking=False):
            return
        try:
            for plan in PLANS:
                if self._is_ending.is_set():
                    return
                self._compiled.warm_up([plan])
            self._is_compiled.set()
        except Exception:  # folder removed, Spark ending...: rounds are interpreted, and the next large one tries again
            log.debug("the compiled plans could not be prepared", exc_info=True)
        finally:
            self._is_compiling.release()


class _Mode:
    """Prepared plans, by file length, in a session of their own."""

    def __init__(self, spark: SparkSession, folder: Path, settings: dict[str, str]):
        self.application, self._folder, self._settings = spark, folder, settings
        self._prepared: dict[tuple[Plan, int], DataFrame] = {}
        self._lock = threading.Lock()

    @cached_property
    def _spark(self) -> SparkSession:
        return side_session(self.application, self._settings)

    def warm_up(self, plans: Sequence[Plan]) -> None:
        for plan in plans:
            self.run(SCHEMA.empty_table(), plan)

    def run(self, rows: pa.Table, plan: Plan) -> pa.Table:
        with self._lock:  # a round may begin before the plans are prepared
            return self._run(leaf_of(rows), plan)

    def _run(self, leaf: pa.Table, plan: Plan) -> pa.Table:
        parquet = to_parquet(leaf)
        length = next((length for length in LENGTHS if len(parquet) <= length), None)
        if length is None:
            return plan(local_frame(self._spark, leaf).coalesce(1)).toArrow()
        path = self._folder / f"inputs-{length}.parquet"
        check_there(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_padded(path, parquet, length)
        if (plan, length) not in self._prepared:
            read = self._spark.read.schema(from_arrow_schema(LEAF)).parquet(str(path))
            self._prepared[plan, length] = plan(read.coalesce(1))
        return self._prepared[plan, length].toArrow()


@uncollected()
def outcomes(result: pa.Table, cursors: int) -> list[Outcome]:
    """A plan's result (transforms.round_inputs.RESULT) by cursor, with ranges in the order of places."""
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
