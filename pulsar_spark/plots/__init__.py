"""Pictures of a root's state, for notebooks: backlog, rates, rounds, deliveries, hash owners, due times, one message.

Each function reads a few rows of the broker's tables with *spark*, draws on *axes* (by default on a new figure) and
returns the axes. Install with ``pip install 'pulsar_spark[plots]'``. Dashes and hatches tell lines and bars apart
without colours.
"""

import os
from typing import TYPE_CHECKING, cast

import pandas as pd
from matplotlib.axes import Axes
from pyspark.sql import functions as F

from pulsar_spark.plots import drawing
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.spark.spark_root import layout_for_frames
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.views.explain.explanation import life_at
from pulsar_spark.views.views import create_views, rows_of_bundles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["backlog", "due_times", "hash_owners", "message_history", "rates", "rounds", "who_got_what"]


def backlog(spark: "SparkSession", root: str | os.PathLike, topic: str, *, axes: Axes | None = None) -> Axes:
    """Plot the entries after mark-delete of each subscription of *topic* over time, one step per round.

    *spark* reads the root in the folder *root*. Entries acknowledged above a hole still count.
    """
    return drawing.draw_backlog(_progress(spark, root, topic), topic, axes)


def rates(
    spark: "SparkSession", root: str | os.PathLike, topic: str, subscription: str, *, axes: Axes | None = None
) -> Axes:
    """Plot entries per second published to *topic* and acknowledged by *subscription*, and messages per second
    delivered to it.

    *spark* reads the root in the folder *root*.
    """
    return drawing.draw_rates(_progress(spark, root, topic), topic, subscription, axes)


def rounds(spark: "SparkSession", root: str | os.PathLike, *, axes: Axes | None = None) -> Axes:
    """Plot the rounds per second of the brokers that served the root in the folder *root*, one line per broker."""
    create_views(spark, root)
    found = spark.sql("SELECT round_time AS time, broker_id FROM rounds ORDER BY round")
    return drawing.draw_rounds(_as_pandas(found), axes)


def who_got_what(
    spark: "SparkSession",
    root: str | os.PathLike,
    topic: str,
    subscription: str,
    *,
    partition: int = -1,
    axes: Axes | None = None,
) -> Axes:
    """Plot which positions of *topic* each consumer of *subscription* received, one bar per run of positions; hatched
    if delivered again.

    *spark* reads the root in the folder *root*; *partition* chooses a partition of a partitioned topic.
    """
    found = _events(spark, root, topic, subscription, partition, "event = 'delivered' AND first IS NOT NULL")
    return drawing.draw_who_got_what(found, topic, subscription, axes)


def hash_owners(
    spark: "SparkSession", root: str | os.PathLike, topic: str, subscription: str, *, axes: Axes | None = None
) -> Axes:
    """Plot which consumer of the Key_Shared *subscription* of *topic* owned which hashes in each round.

    *spark* reads the root in the folder *root*.
    """
    facts = rows_of_bundles(spark, layout_for_frames(spark, root), CURSOR_LEDGER)
    owned = spark.sql(
        """
        SELECT consumer_name, first_round, last_round, bigint(range.start) AS start, bigint(range.end) AS end FROM (
            SELECT consumer_name, is_removed, hash_ranges, round AS first_round,
                lead(round, 1, (SELECT max(round) + 1 FROM {facts})) OVER (PARTITION BY consumer_id ORDER BY round)
                    AS last_round
            FROM {facts} WHERE kind = 'consumer' AND topic = {topic} AND subscription = {subscription}
                AND (hash_ranges IS NOT NULL OR is_removed)
        ) LATERAL VIEW explode(hash_ranges) AS range
        WHERE is_removed IS NOT TRUE ORDER BY first_round, range.start""",
        facts=facts,
        topic=_full(topic),
        subscription=subscription,
    )
    return drawing.draw_hash_owners(_as_pandas(owned), topic, subscription, axes)


def due_times(
    spark: "SparkSession", root: str | os.PathLike, topic: str, *, bins: int = 60, axes: Axes | None = None
) -> Axes:
    """Plot when the delayed messages of *topic* come due, as a histogram of *bins* bars.

    *spark* reads the root in the folder *root*.
    """
    create_views(spark, root)
    scheduled = spark.table("scheduled").filter(F.col("topic") == _full(topic))
    due = _as_pandas(scheduled.select("due_time"))["due_time"]
    return drawing.draw_due_times(due, topic, bins, axes)


def message_history(
    spark: "SparkSession",
    root: str | os.PathLike,
    topic: str,
    position: int,
    *,
    partition: int = -1,
    axes: Axes | None = None,
) -> Axes:
    """Plot the events of the entry at *position* of *topic* over time: one row per subscription, one mark per event,
    as ``Admin.explain`` tells them.

    *spark* reads the root in the folder *root*; *partition* chooses a partition of a partitioned topic.
    """
    events = life_at(layout_for_frames(spark, root), topic, partition, position)
    found = pd.DataFrame([[getattr(event, name) for name in _LIFE] for event in events], columns=_LIFE)
    return drawing.draw_message_history(found, topic, position, axes)


_LIFE = ["time", "event", "subscription", "consumer_name"]


def _progress(spark: "SparkSession", root: str | os.PathLike, topic: str) -> pd.DataFrame:
    """One row per round and subscription: entries published and acknowledged, messages delivered until then."""
    facts = rows_of_bundles(spark, layout_for_frames(spark, root), CURSOR_LEDGER)
    rows = spark.sql(
        """
        SELECT kind, round, round_time, partition, subscription, end_position, mark_delete_position, msg_out_counter
        FROM {facts} WHERE kind = 'round' OR kind IN ('topic', 'cursor') AND topic = {topic} ORDER BY round""",
        facts=facts,
        topic=_full(topic),
    )
    found = _as_pandas(rows)
    times = found[found["kind"] == "round"].set_index("round")["round_time"]
    of_topic, of_cursors = found[found["kind"] == "topic"], found[found["kind"] == "cursor"]
    published = _sums(of_topic, "end_position", times.index)
    parts = []
    for name, rows in of_cursors.groupby("subscription"):
        acknowledged = _sums(
            rows.assign(mark_delete_position=rows["mark_delete_position"] + 1), "mark_delete_position", times.index
        )
        delivered = _sums(rows, "msg_out_counter", times.index)
        part = pd.DataFrame({"published": published, "acknowledged": acknowledged, "delivered": delivered})
        parts.append(part.assign(subscription=name, time=times)[part.index >= rows["round"].min()])
    columns = ["published", "acknowledged", "delivered", "subscription", "time"]
    return pd.concat(parts) if parts else pd.DataFrame(columns=columns)


def _sums(rows: pd.DataFrame, column: str, rounds_: pd.Index) -> pd.Series:
    by_partition = rows.pivot_table(index="round", columns="partition", values=column, aggfunc="last")
    return by_partition.reindex(rounds_.union(by_partition.index)).ffill().fillna(0).sum(axis=1).reindex(rounds_)


def _events(
    spark: "SparkSession", root: str | os.PathLike, topic: str, subscription: str, partition: int, which: str
) -> pd.DataFrame:
    create_views(spark, root)
    found = spark.table("history").filter((F.col("topic") == _full(topic)) & (F.col("partition") == partition))
    found = found.filter(F.col("subscription") == subscription)
    columns = ("time", "event", "subscription", "consumer_name", "first", "last")
    return _as_pandas(found.filter(which).select(*columns).orderBy("time"))


def _as_pandas(frame: "DataFrame") -> pd.DataFrame:
    return cast(pd.DataFrame, frame.toPandas())


def _full(topic: str) -> str:
    return str(parse_topic_name(topic))
