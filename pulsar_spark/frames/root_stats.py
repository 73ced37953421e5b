"""Statistics as a DataFrame; views.stats_table describes each column."""

import os
from collections.abc import Callable
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.frames.publishing.producer import utc_now
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.topics.bundles import layout_of, layouts_of
from pulsar_spark.storage.topics.topics import list_topics, read_topic
from pulsar_spark.views.stats import Observation
from pulsar_spark.views.stats_table import STATS, stats_rows


def stats(
    spark: SparkSession, root: str | os.PathLike, topic: str | None = None, *, clock: Callable[[], datetime] = utc_now
) -> DataFrame:
    """Current statistics: one row per topic partition, per subscription on it, and per consumer of that.

    *spark* reads the root in the folder *root*; no broker is needed. *topic* limits the rows to one topic. The row of a
    topic partition has no subscription, the row of a subscription has no consumer. Rates are averages over the minute
    before the time of *clock*."""
    layout = Layout(root)
    topics = (
        [read_topic(layout, topic)]
        if topic
        else [found for pair in layout.namespaces() for found in list_topics(layout, *pair)]
    )
    now = clock()
    rows = [
        row
        for bundle in layouts_of(layout)
        if (its := [found for found in topics if layout_of(layout, found.name).bundle == bundle.bundle])
        for row in stats_rows(Observation(bundle, now), its)
    ]
    return local_frame(spark, STATS.rows(rows))
