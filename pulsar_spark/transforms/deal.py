"""Deal candidates to turns (design 4, step 7): both lie end to end on an axis from zero, and a turn's consumer gets the
candidates it covers. So the cost depends on ranges, not entries."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement.cursor import PENDING, UNREAD
from pulsar_spark.transforms.acknowledge import ATTRIBUTES, ENTRIES, LIMITS, TURNS
from pulsar_spark.transforms.offer import QUEUE_KEYS
from pulsar_spark.transforms.round_inputs import STATE

UNTOUCHED, DEALT, FACTS = 0, 1, 2
"""Axes of the sweep: segments not on offer, at their positions; candidates and turns, by line, at counts of entries;
and facts about consumers and cursors."""

_NAMES = ("stretch", "taker", "fact")


def deal_out(lined_up: DataFrame) -> DataFrame:
    """Give the candidates to the turns that cover them.

    One row per cursor and range of the new state, unordered and not merged, with messages given (``given``) and those
    met before (``given_again``); and one per consumer and cursor with only a ``fact``."""
    cut = _sweep(_points(lined_up))
    is_taken = F.col("taken_by").isNotNull()
    is_dealt = F.col("axis") == DEALT
    first = F.when(is_dealt, F.col("first") + F.col("at") - F.col("before")).otherwise(F.col("first"))
    last = F.when(is_dealt, F.col("first") + F.col("until") - 1 - F.col("before")).otherwise(F.col("last"))
    dealt = cut.where(F.col("fact").isNotNull() | is_taken | (F.col("status") != UNREAD)).select(
        "cursor",
        "fact",
        first.alias("first"),
        last.alias("last"),
        F.when(is_taken, F.lit(PENDING)).otherwise(F.col("status")).alias("status"),
        F.when(is_taken, F.col("taken_by")).otherwise(F.col("consumer_id")).alias("consumer_id"),
        F.when(is_taken, F.col("round")).otherwise(F.col("delivery_round")).alias("delivery_round"),
        "redelivery_count",
        F.when(~is_taken, F.col("due_time")).alias("due_time"),
        "ack_set",
        "batch_size",
        F.when(is_taken, F.col("weight")).alias("weight"),
        F.col("read_position").alias("met_below"),
    )
    return dealt.select(
        "*",
        _messages(F.col("last") + 1 - F.col("first")).alias("given"),
        _messages(F.least(F.col("last") + 1, "met_below") - F.col("first")).alias("given_again"),
    )


def deal_nothing(judged: DataFrame) -> DataFrame:
    is_entry = F.col("axis") == ENTRIES
    return judged.where(is_entry | _is_fact()).select(
        "cursor",
        F.when(~is_entry, _fact()).alias("fact"),
        *(F.when(is_entry, F.col(name)).alias(name) for name in STATE),
        *(F.lit(0).cast("bigint").alias(given) for given in ("delivered", "redelivered")),
    )


def _is_fact() -> Column:
    return (F.col("axis") == LIMITS) | ((F.col("axis") == TURNS) & (F.col("turn.lap") == 0))


def _fact() -> Column:
    is_turn = F.col("axis") == TURNS
    return F.struct(
        "turn.consumer_id",
        "turn.permits",
        "is_blocked",
        F.when(is_turn, F.col("turn.limit")).otherwise(F.col("limits.limit")).alias("limit"),
        F.when(is_turn, F.col("unacked_here")).otherwise(F.col("unacked")).alias("out"),
    )


def _points(lined_up: DataFrame) -> DataFrame:
    """Begins and ends of stretches and turns; a segment not on offer, or a fact, is one point."""
    turn = F.struct(F.col("turn.consumer_id").alias("consumer_id"))
    nobody = F.struct(F.lit(None).cast("string").alias("consumer_id"))
    range_ = F.struct("first", "last", "before", "weight", *ATTRIBUTES, "limits.round", "limits.read_position")
    stretch, nothing = F.struct(range_.alias("held")), F.struct(F.when(F.lit(False), range_).alias("held"))
    fact = _fact()
    nulls = {name: F.when(F.lit(False), each) for name, each in zip(_NAMES, (stretch, turn, fact))}

    def point(axis: int, at: Column, *, begins: bool, **given: Column) -> Column:
        columns = [given.get(name, null).alias(name) for name, null in nulls.items()]
        return F.struct(F.lit(axis).alias("axis"), at.alias("at"), F.lit(begins).alias("begins"), *columns)

    takes = [
        point(DEALT, F.col("from_entry"), begins=True, taker=turn),
        point(DEALT, F.col("to_entry"), begins=False, taker=nobody),
    ]
    end = F.col("before") + F.col("offered")
    offers = [
        point(DEALT, F.col("before"), begins=True, stretch=stretch),
        point(DEALT, end, begins=False, stretch=nothing),
    ]
    is_turn, takes_some = F.col("axis") == TURNS, F.col("from_entry") < F.col("to_entry")
    is_fact = _is_fact()
    fact_point = point(FACTS, F.col("first"), begins=True, fact=fact)
    points = (
        F.when(is_fact & is_turn & takes_some, F.array(fact_point, *takes))
        .when(is_fact, F.array(fact_point))
        .when(is_turn & takes_some, F.array(*takes))
        .when(is_turn, F.array())
        .when(F.col("offered") > 0, F.array(*offers))
        .otherwise(F.array(point(UNTOUCHED, F.col("first"), begins=True, stretch=stretch)))
    )
    return lined_up.select("cursor", "line", F.inline(points))


def _messages(entries: Column) -> Column:
    return F.coalesce(F.greatest(entries, F.lit(0)) * F.col("weight"), F.lit(0))


def _sweep(points: DataFrame) -> DataFrame:
    """What is open at each point, and up to where. At one place ends sort before begins."""
    by_count = Window.partitionBy(*QUEUE_KEYS).orderBy("at", "begins")
    so_far = by_count.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    swept = points.select(
        "cursor",
        "axis",
        "at",
        F.lead("at").over(by_count).alias("until"),
        F.last("stretch", ignorenulls=True).over(so_far).alias("stretch"),
        F.last("taker", ignorenulls=True).over(so_far).alias("taker"),
        "fact",
    )
    is_stretch = (F.col("until") > F.col("at")) & F.col("stretch.held").isNotNull()
    return swept.where((F.col("axis") != DEALT) | is_stretch).select(
        "cursor",
        "axis",
        "at",
        "until",
        "fact",
        "stretch.held.*",
        F.when(F.col("axis") == DEALT, F.col("taker.consumer_id")).alias("taken_by"),
    )
