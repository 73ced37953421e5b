"""Deal candidates to turns (design 4): both lie end to end on an axis from zero, and a turn's consumer gets the
candidates it covers. So the cost depends on ranges, not entries."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement.cursor import PENDING, UNREAD
from pulsar_spark.transforms.acknowledge import ATTRIBUTES
from pulsar_spark.transforms.round_inputs import ENTRIES, FACTS, STATE, TURNS

UNTOUCHED, DEALT = 0, 1
"""Axes of the sweep, beside facts: entries not on offer, at their positions; candidates and turns, by line, at counts
of entries."""


def deal_out(lined_up: DataFrame) -> DataFrame:
    """Give the candidates to the turns that cover them.

    One row per cursor and range of the new state, unordered and not merged, with the messages given (``given``), and
    how many of these were met before (``given_again``); and one per consumer and cursor with only a ``fact``."""
    cut = _sweep(_points(lined_up))
    is_taken, is_dealt = F.col("taker.consumer_id").isNotNull(), F.col("axis") == DEALT
    start = F.col("entries.first") - F.col("entries.before")
    first = F.when(is_dealt, start + F.col("at")).otherwise(F.col("entries.first"))
    last = F.when(is_dealt, start + F.col("until") - 1).otherwise(F.col("entries.last"))
    dealt = {
        "first": first,
        "last": last,
        "status": F.when(is_taken, F.lit(PENDING)).otherwise(F.col("entries.status")),
        "consumer_id": F.when(is_taken, F.col("taker.consumer_id")).otherwise(F.col("entries.consumer_id")),
        "delivery_round": F.when(is_taken, F.col("limits.round")).otherwise(F.col("entries.delivery_round")),
        "due_time": F.when(~is_taken, F.col("entries.due_time")),
    }
    weight = F.when(is_taken, F.col("entries.weight"))
    met = F.least(last + 1, "limits.read_position")
    is_left = F.col("entries").isNotNull() & (is_taken | (F.col("entries.status") != UNREAD))
    return cut.where(F.col("fact").isNotNull() | (is_left & (~is_dealt | (F.col("until") > F.col("at"))))).select(
        "cursor",
        "fact",
        *(dealt.get(name, F.col(f"entries.{name}")).alias(name) for name in STATE),
        _messages(last + 1 - first, weight).alias("given"),
        _messages(met - first, weight).alias("given_again"),
    )


def deal_nothing(judged: DataFrame) -> DataFrame:
    is_entry = F.col("axis") == ENTRIES
    return judged.where(F.col("axis") != TURNS).select(
        "cursor",
        _fact().alias("fact"),
        *(F.when(is_entry, F.col(name)).alias(name) for name in STATE),
        *(F.lit(0).cast("bigint").alias(given) for given in ("delivered", "redelivered")),
    )


def _fact() -> Column:
    is_consumer = F.col("turn").isNotNull()
    fact = F.struct(
        "consumer_id",
        "turn.permits",
        "is_blocked",
        F.when(is_consumer, F.col("turn.limit")).otherwise(F.col("limits.limit")).alias("limit"),
        F.when(is_consumer, F.col("unacked_here")).otherwise(F.col("unacked")).alias("out"),
    )
    return F.when(F.col("axis") == FACTS, fact)


def _points(lined_up: DataFrame) -> DataFrame:
    """The point at which each candidate and each turn begins; it lasts until the next. The last turn of a line is
    nobody's. Turns that take nothing have no point."""
    is_offered, is_turn = F.col("offered") > 0, F.col("axis") == TURNS
    is_end = is_turn & F.col("consumer_id").isNull()
    takes = (is_turn & (F.col("from_entry") < F.col("to_entry"))) | is_end
    end = (F.col("before") + F.col("offered")).alias("end")
    entries = F.struct("first", "last", "before", end, "weight", *ATTRIBUTES)
    return lined_up.select(
        "cursor",
        "line",
        F.when(is_offered | takes, DEALT).when(~is_turn, F.col("axis")).alias("axis"),
        F.when(is_offered, F.col("before")).when(takes, F.col("from_entry")).otherwise(F.col("first")).alias("at"),
        F.when(F.col("axis") == ENTRIES, entries).alias("entries"),
        F.when(takes, F.struct("consumer_id")).alias("taker"),
        _fact().alias("fact"),
        "limits",
    )


def _messages(entries: Column, weight: Column) -> Column:
    return F.coalesce(F.greatest(entries, F.lit(0)) * weight, F.lit(0))


def _sweep(points: DataFrame) -> DataFrame:
    """The candidate and the turn that cover each point, and how far they do."""
    by_count = Window.partitionBy("cursor", "line", "axis").orderBy("at")
    so_far = by_count.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    swept = points.select(
        "cursor",
        "axis",
        "at",
        F.lead("at").over(by_count).alias("next"),
        F.last("entries", ignorenulls=True).over(so_far).alias("entries"),
        F.last("taker", ignorenulls=True).over(so_far).alias("taker"),
        "fact",
        "limits",
    )
    return swept.withColumn("until", F.least("next", "entries.end"))
