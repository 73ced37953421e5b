"""Show how far a consumer is within a delivery: on a terminal as it goes, elsewhere by a line of the log per minute."""

import contextlib
import logging
import time
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pulsar_spark.cli.common import progress_console, working
from pulsar_spark.frames import Consumption, Delivery
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.storage.session import has_context

LOOK_SECONDS, LOG_SECONDS = 1.0, 60.0
log = logging.getLogger(__name__)


def await_termination(
    consumption: Consumption, spark: SparkSession, clock: Callable[[], float] = time.monotonic
) -> None:
    """Wait until *consumption* has ended; raise its error. *clock* counts monotonic seconds."""
    delivery: Delivery | None = None
    began = logged = clock()
    with working("waiting for messages") as status:
        while not consumption.await_termination(LOOK_SECONDS):
            now, before, delivery = clock(), delivery, consumption.current_delivery
            if delivery is None:
                status.update(f"waiting for messages, {consumption.totals['messages']:,} handled")
                continue
            if delivery is not before:
                began = logged = now
            text = _as_sentence(delivery, tasks(spark), now - began)
            status.update(text)
            if now - logged >= LOG_SECONDS and not progress_console.is_terminal:
                logged = now
                log.info("%s of %s: %s", delivery.subscription, delivery.topic, text)


def _as_sentence(delivery: Delivery, tasks: tuple[int, int], seconds: float) -> str:
    of_tasks = f", {tasks[0]} of {tasks[1]} tasks of this step done" if tasks[1] else ""
    return f"writing {delivery.messages:,} messages for {shown_seconds(round(seconds))}{of_tasks}"


def tasks(spark: SparkSession) -> tuple[int, int]:
    """Of the stages that Spark works on: the tasks that are done, and all; zeros through Spark Connect."""
    if not has_context(spark):
        return 0, 0
    with contextlib.suppress(Py4JError, OSError):  # Spark ends: the consumer notices it, too
        tracker = spark.sparkContext.statusTracker()
        stages = [stage for each in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(each))]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return 0, 0
