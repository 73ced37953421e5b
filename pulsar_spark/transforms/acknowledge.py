"""Acknowledgements folded into ranges (design 4, step 3).

Individual and cumulative acknowledgements arrive as ranges and need no rule of their own: a position under one is
acknowledged, wherever it was (pending at anybody, waiting for replay, never delivered). A batch index acknowledgement
intersects the entry's ack set; when nothing is left the entry is acknowledged. Source: ManagedCursorImpl.asyncDelete,
PersistentSubscription.acknowledgeMessage; semantics 3.11-3.20. The redelivery count stays (0.20, against 3.13).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.columns import full_ack_set, intersect_ack_sets
from pulsar_spark.transforms.intervals import to_segments

KEYS = ("cursor", "lane")
PASSES = ("turn", "limits")


def fold_requests(inputs: DataFrame) -> DataFrame:
    """Cut state, unread entries and requests into segments and apply the acknowledgements.

    One row per cursor and segment of lane 0: first, last, status (acknowledged, pending, replay, unread or null), the
    entry's attributes, and the return request over it, if any; lane 1 carries the consumers' turns and lane 2 the
    cursor's limits along untouched.
    """
    kind = F.col("kind")
    is_range, is_unread, is_ack_set = kind == "range", kind == "unread", kind.isin("batch_ack", "ack_set")
    info = F.struct("status", "consumer_id", "delivery_round", "redelivery_count", "due_time", "ack_set", "batch_size")
    turn = F.struct("ordinal", "consumer_id", "lap", "peers", "permits", "limit", "unacked_elsewhere", "is_blocked")
    limits = F.struct(
        "is_single_active",
        "limit",
        "unacked_elsewhere",
        "is_blocked",
        "permits",
        "max_redeliver_count",
        "left",
        "redelivered",
        "round",
        "now",
        F.coalesce("wall", "now").alias("wall"),
    )
    lane = F.when(kind == "consumer", 1).when(kind == "cursor", 2).otherwise(0)
    ranges = inputs.select(
        "*",
        lane.alias("lane"),
        F.when(is_range, info).alias("info_"),
        F.when(is_unread, F.struct("batch_size", "due_time")).alias("run_"),
        F.when(kind == "return", F.struct("consumer_id", "due_time")).alias("back_"),
        F.when(is_ack_set, F.struct("ack_set", (kind == "ack_set").alias("replaces"))).alias("left_unacked_"),
        F.when(kind == "consumer", turn).alias("turn"),
        F.when(kind == "cursor", limits).alias("limits"),
    )
    segments = to_segments(
        ranges,
        keys=KEYS,
        passes=PASSES,
        opens={
            "states": is_range,
            "unread": is_unread,
            "acks": kind == "ack",
            "returns": kind == "return",
            "batch_acks": is_ack_set,
        },
        carries={
            "info": F.col("info_"),
            "run": F.col("run_"),
            "back": F.col("back_"),
            "left_unacked": F.col("left_unacked_"),
        },
    )
    held = segments.select(
        *KEYS,
        *PASSES,
        "first",
        "last",
        (F.col("acks") > 0).alias("is_acked"),
        F.when(F.col("states") > 0, F.col("info"))
        .when(
            F.col("unread") > 0,
            F.struct(
                F.lit("unread").alias("status"),
                F.lit(None).cast("string").alias("consumer_id"),
                F.lit(None).cast("bigint").alias("delivery_round"),
                F.lit(0).alias("redelivery_count"),
                F.col("run.due_time").alias("due_time"),
                F.lit(None).cast("array<bigint>").alias("ack_set"),
                F.col("run.batch_size").alias("batch_size"),
            ),
        )
        .alias("info"),
        F.when(F.col("returns") > 0, F.col("back")).alias("back"),
        F.when(F.col("batch_acks") > 0, F.col("left_unacked")).alias("left_unacked"),
    )
    ack_set = (
        F.when(F.col("left_unacked").isNull(), F.col("info.ack_set"))
        .when(F.col("left_unacked.replaces"), F.col("left_unacked.ack_set"))
        .otherwise(
            intersect_ack_sets(
                F.coalesce(F.col("info.ack_set"), full_ack_set(F.col("info.batch_size"))), F.col("left_unacked.ack_set")
            )
        )
    )
    known = held.select("*", ack_set.alias("ack_set"))
    is_partly_acked_unread = F.col("left_unacked").isNotNull() & (F.col("info.status") == "unread")
    status = (
        F.when(
            F.col("is_acked") | (F.col("info.status") == "acknowledged") | (F.size("ack_set") == 0),
            F.lit("acknowledged"),
        )
        .when(is_partly_acked_unread, F.lit("replay"))
        .otherwise(F.col("info.status"))
    )
    return known.where(
        "(lane > 0 and last is not null) or (lane = 0 and last >= first and (is_acked or info is not null))"
    ).select(
        *KEYS,
        *PASSES,
        "first",
        "last",
        status.alias("status"),
        "info.consumer_id",
        "info.delivery_round",
        F.coalesce("info.redelivery_count", F.lit(0)).alias("redelivery_count"),
        "info.due_time",
        "ack_set",
        "info.batch_size",
        "back",
    )
