"""Pictures of a root's state, for notebooks: backlog, rates, rounds, deliveries, hash owners, due times, one message.

Each function reads a few rows of the broker's tables with Spark, draws on *axes* (by default on a new figure) and
returns the axes. Install with ``pip install 'pulsar_spark[plots]'``. The colours are those of Okabe and Ito, which
people with any kind of colour vision can tell apart. Lines also differ in dashes, bars in hatches.
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from pyspark.sql import functions as F

from pulsar_spark.protocol.topic_name import parse_topic_name
from pulsar_spark.storage.spark_root import layout_for_frames
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.views.views import create_views, rows_of_bundles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "//", "..", "xx", "\\\\", "++")
EVENT_MARKS = {
    "delivered": "o",
    "acknowledged": "s",
    "negatively_acknowledged": "v",
    "retry_lettered": "^",
    "dead_lettered": "X",
}


def backlog(spark: "SparkSession", root: str | os.PathLike, topic: str, *, axes: Axes | None = None) -> Axes:
    """Plot the entries after mark-delete of each subscription of *topic* over time, one step per round.

    *spark* reads the root in the folder *root*. Entries acknowledged above a hole still count.
    """
    axes = _axes(axes)
    for number, (name, rounds) in enumerate(_progress(spark, root, topic).groupby("subscription")):
        axes.step(
            rounds["time"], rounds["published"] - rounds["acknowledged"], where="post", label=name, **_line(number)
        )
    return _over_time(axes, f"Backlog of {topic}", "entries")


def rates(
    spark: "SparkSession", root: str | os.PathLike, topic: str, subscription: str, *, axes: Axes | None = None
) -> Axes:
    """Plot entries per second published to *topic* and acknowledged by *subscription*, and messages per second
    delivered to it.

    *spark* reads the root in the folder *root*. Each point is the mean over the second before it.
    """
    axes, progress = _axes(axes), _progress(spark, root, topic)
    of_one = progress[progress["subscription"] == subscription].set_index("time")
    for number, name in enumerate(("published", "delivered", "acknowledged")):
        a_second = of_one[name].resample("1s").last().ffill().diff().fillna(0)
        axes.plot(a_second.index, a_second, label=name, **_line(number))
    return _over_time(axes, f"Rates of {topic}, {subscription}", "a second")


def rounds(spark: "SparkSession", root: str | os.PathLike, *, axes: Axes | None = None) -> Axes:
    """Plot the rounds per second of the brokers that served the root in the folder *root*, one line per broker. *spark*
    reads it.
    """
    create_views(spark, root)
    axes = _axes(axes)
    found = spark.sql("SELECT round_time AS time, broker_id FROM rounds ORDER BY round").toPandas()
    for number, (broker, of_one) in enumerate(found.groupby("broker_id", sort=False)):
        a_second = of_one.set_index("time")["broker_id"].resample("1s").count()
        axes.step(a_second.index, a_second, where="mid", label=f"broker {str(broker)[:8]}", **_line(number))
    return _over_time(axes, "Rounds", "a second")


def who_got_what(
    spark: "SparkSession",
    root: str | os.PathLike,
    topic: str,
    subscription: str,
    *,
    partition: int = -1,
    axes: Axes | None = None,
) -> Axes:
    """Plot which positions of *topic* each consumer of *subscription* received, one bar per run of positions.

    *spark* reads the root in the folder *root*; *partition* chooses a partition of a partitioned topic. Bars with a
    dark edge are redeliveries.
    """
    found = _events(spark, root, topic, subscription, partition, "event = 'delivered' AND first IS NOT NULL")
    axes = _axes(axes)
    names = sorted(found["consumer_name"].dropna().unique())
    for number, name in enumerate(names):
        of_one = found[found["consumer_name"] == name]
        runs = list(zip(of_one["first"], of_one["last"] - of_one["first"] + 1))
        edges = ["black" if count else "none" for count in of_one["redelivery_count"].fillna(0)]
        axes.broken_barh(runs, (number - 0.4, 0.8), facecolors=COLOURS[number % len(COLOURS)], edgecolors=edges)
    axes.set(title=f"Who got what of {topic}, {subscription}", xlabel="position", ylabel="consumer")
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return axes


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
    ).toPandas()
    axes, names = _axes(axes), sorted(owned["consumer_name"].unique())
    for number, name in enumerate(names):
        of_one = owned[owned["consumer_name"] == name]
        axes.bar(
            of_one["first_round"],
            of_one["end"] - of_one["start"] + 1,
            width=of_one["last_round"] - of_one["first_round"],
            bottom=of_one["start"],
            align="edge",
            **_bar(number),
        )
    axes.set(title=f"Who owns which hashes of {topic}, {subscription}", xlabel="round", ylabel="hash")
    if len(owned):
        axes.set(xlim=(owned["first_round"].min(), owned["last_round"].max()), ylim=(0, owned["end"].max() + 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(handles=_patches(names), loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def due_times(
    spark: "SparkSession", root: str | os.PathLike, topic: str, *, bins: int = 60, axes: Axes | None = None
) -> Axes:
    """Plot when the delayed messages of *topic* come due, as a histogram of *bins* bars.

    *spark* reads the root in the folder *root*.
    """
    create_views(spark, root)
    scheduled = spark.table("scheduled").filter(F.col("topic") == _full(topic))
    due = scheduled.select("due_time").toPandas()["due_time"]
    axes = _axes(axes)
    axes.hist(due, bins=bins, color=COLOURS[0])
    return _over_time(axes, f"{len(due):,} messages of {topic} wait", "messages", is_labelled=False)


def message_history(
    spark: "SparkSession",
    root: str | os.PathLike,
    topic: str,
    position: int,
    *,
    partition: int = -1,
    axes: Axes | None = None,
) -> Axes:
    """Plot the events of the entry at *position* of *topic* over time: one row per subscription, one mark per event.

    *spark* reads the root in the folder *root*; *partition* chooses a partition of a partitioned topic.
    """
    found = _events(spark, root, topic, None, partition, f"{position:d} BETWEEN coalesce(first, 0) AND last")
    axes, names = _axes(axes), sorted(found["subscription"].dropna().unique())
    for number, (event, of_one) in enumerate(found.dropna(subset=["subscription"]).groupby("event")):
        heights = [names.index(name) for name in of_one["subscription"]]
        mark = EVENT_MARKS.get(str(event), "D")
        axes.scatter(of_one["time"], heights, label=event, marker=mark, color=COLOURS[number % len(COLOURS)], s=70)
    for row in found[found["event"] == "delivered"].itertuples():
        axes.annotate(row.consumer_name, (row.time, names.index(row.subscription)), (0, 8), textcoords="offset points")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.5, max(len(names), 1) - 0.3)
    return _over_time(axes, f"Entry {position} of {topic}", "subscription")


def _progress(spark: "SparkSession", root: str | os.PathLike, topic: str) -> pd.DataFrame:
    """One row a round and subscription: until then published and acknowledged entries, delivered messages."""
    facts = rows_of_bundles(spark, layout_for_frames(spark, root), CURSOR_LEDGER)
    found = spark.sql(
        """
        SELECT kind, round, round_time, partition, subscription, end_position, mark_delete_position, msg_out_counter
        FROM {facts} WHERE kind = 'round' OR kind IN ('topic', 'cursor') AND topic = {topic} ORDER BY round""",
        facts=facts,
        topic=_full(topic),
    ).toPandas()
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
    """The sum over partitions of what *column* was after each round."""
    by_partition = rows.pivot_table(index="round", columns="partition", values=column, aggfunc="last")
    return by_partition.reindex(rounds_.union(by_partition.index)).ffill().fillna(0).sum(axis=1).reindex(rounds_)


def _events(
    spark: "SparkSession", root: str | os.PathLike, topic: str, subscription: str | None, partition: int, which: str
) -> pd.DataFrame:
    """Rows of the view ``history`` for which the condition *which* holds, in order."""
    create_views(spark, root)
    found = spark.table("history").filter((F.col("topic") == _full(topic)) & (F.col("partition") == partition))
    if subscription is not None:
        found = found.filter(F.col("subscription") == subscription)
    columns = ("time", "event", "subscription", "consumer_name", "first", "last", "redelivery_count")
    return found.filter(which).select(*columns).orderBy("time").toPandas()


def _full(topic: str) -> str:
    return str(parse_topic_name(topic))


def _axes(axes: Axes | None) -> Axes:
    return axes if axes is not None else plt.subplots(figsize=(9, 4), layout="constrained")[1]


def _line(number: int) -> dict:
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}


def _bar(number: int) -> dict:
    return {"color": COLOURS[number % len(COLOURS)], "hatch": HATCHES[number % len(HATCHES)]}


def _patches(names: Iterable[str]) -> list[Patch]:
    return [
        Patch(facecolor=COLOURS[number % len(COLOURS)], hatch=HATCHES[number % len(HATCHES)], label=name)
        for number, name in enumerate(names)
    ]


def _over_time(axes: Axes, title: str, unit: str, *, is_labelled: bool = True) -> Axes:
    """The axes with a title, the *unit* of what goes up, and instants (UTC) along."""
    axes.set(title=title, ylabel=unit, xlabel="time (UTC)")
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    if is_labelled and axes.get_legend_handles_labels()[1]:
        axes.legend()
    return axes
