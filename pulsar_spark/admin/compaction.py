"""Compaction, with the verbs of ``pulsar-admin topics``. It needs no broker."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pulsar_spark.broker.compaction.compaction import compact
from pulsar_spark.broker.compaction.compaction_plan import Compaction, Written
from pulsar_spark.storage.compaction.compacted import DURATION_MS, REMOVED, SUCCEED_TIME_MS, CompactedView
from pulsar_spark.storage.compaction.compaction_status import compaction_status
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, resolve_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TopicCompaction:
    """Part of ``Admin`` for compaction."""

    layout: Layout

    def compact(self, topic: str, spark: "Callable[[], SparkSession] | None" = None) -> str:
        """Compact a topic or one of its partitions, wait for the end, and return the status SUCCESS.

        All but small topics need Spark: *spark* returns the session. :class:`NotAllowedError` if *spark* is missing, or
        another compaction of the topic runs.
        """
        found, partitions = resolve_topic(self.layout, topic)
        compact(self.layout, found, partitions, None if spark is None else partial(_compact_by, spark))
        return compaction_status(found, CompactedView(found.path)).status

    def compaction_status(self, topic: str) -> dict:
        """The last compaction as in Pulsar: ``status`` (NOT_RUN, RUNNING, SUCCESS or ERROR) and ``lastError``."""
        found, _ = resolve_topic(self.layout, topic)
        status = compaction_status(found, CompactedView(found.path))
        return {"status": status.status, "lastError": status.last_error}


def _compact_by(spark: "Callable[[], SparkSession]", compaction: Compaction) -> Written:
    from pulsar_spark.broker.compaction.compaction_job import SparkCompaction

    return SparkCompaction(spark())(compaction)


def compaction_stats(topic: Topic) -> dict:
    """The compaction part of a topic's stats, as in Pulsar; times in ms since 1970, 0 for never."""
    view = CompactedView(topic.path)
    return {
        "lastCompactionRemovedEventCount": view.transaction(REMOVED),
        "lastCompactionSucceedTimestamp": view.transaction(SUCCEED_TIME_MS),
        "lastCompactionFailedTimestamp": compaction_status(topic, view).failed_time_ms,
        "lastCompactionDurationTimeInMills": view.transaction(DURATION_MS),
    }
