"""Who received, acknowledged and gave back which messages when: a view over the rounds and the requests, nothing of it
written for its own sake.

What the broker did is in its rounds: a delivery is a ``pending`` range in the round it names as its delivery round
(later rounds repeat it when they rewrite its page); letters and consumers that left are rows of their own. What was
asked is in the requests, under the client's clock; a request the broker refused is left out, one that asked for nothing
(an acknowledgement of what was acknowledged) is not. Positions count per partition of a topic's life: requests name the
topic only, so after a topic was created again those of its former life stand under the same name. History reaches back
as far as the two tables do.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.letters import RETRY_LETTER

EVENTS = {
    "ack": "acknowledged",
    "cumulative_ack": "acknowledged",
    "negative_ack": "negatively_acknowledged",
    "redeliver_all": "redelivery_asked",
    "reconsume_later": "reconsume_later_asked",
}
"""What a kind of request is called in the history."""


def all_events(rounds: DataFrame, requests: DataFrame) -> DataFrame:
    """The columns of ``view_specs.HISTORY`` from the rows of ``cursor_ledger`` and ``requests``; one row per range of
    entries and event, in no order."""
    happened = _what_the_broker_did(rounds).unionByName(_what_was_asked(rounds, requests), allowMissingColumns=True)
    named = (
        rounds.filter(F.col("consumer_name").isNotNull())
        .groupBy("consumer_id")
        .agg(F.max_by("consumer_name", "round").alias("consumer_name"))
    )
    return happened.join(named, on="consumer_id", how="left")


def _what_the_broker_did(rounds: DataFrame) -> DataFrame:
    is_delivery = (
        (F.col("kind") == "range") & (F.col("status") == "pending") & (F.col("delivery_round") == F.col("round"))
    )
    has_left = (F.col("kind") == "consumer") & F.coalesce("is_removed", F.lit(False))
    is_letter, is_retry = F.col("kind") == "letter", F.col("status").eqNullSafe(RETRY_LETTER)
    event = (
        F.when(is_delivery, "delivered")
        .when(is_letter & is_retry, "retry_lettered")
        .when(is_letter, "dead_lettered")
        .when(has_left, "consumer_left")
    )
    times = rounds.filter(F.col("kind") == "round").select("round", F.col("round_time").alias("time"))
    return (
        rounds.withColumn("event", event)
        .filter("event is not null")
        .join(times, on="round", how="left")
        .select(
            "time",
            "event",
            *_place(),
            "first",
            "last",
            "ack_set",
            "consumer_id",
            "redelivery_count",
            "round",
            "request_id",
            F.col("text").alias("reason"),
        )
    )


def _what_was_asked(rounds: DataFrame, requests: DataFrame) -> DataFrame:
    refused = rounds.filter((F.col("kind") == "reply") & F.col("error").isNotNull()).select("request_id")
    event = F.create_map(*(F.lit(word) for pair in EVENTS.items() for word in pair))[F.col("kind")]
    is_cumulative = F.coalesce(F.col("properties")["is_cumulative"] == "true", F.lit(False))
    return (
        requests.filter(F.col("kind").isin(*EVENTS))
        .join(refused, on="request_id", how="left_anti")
        .select(
            F.col("request_time").alias("time"),
            event.alias("event"),
            *_place(),
            F.when(~is_cumulative, F.col("first")).alias("first"),
            "last",
            "ack_set",
            "consumer_id",
            "delay_ms",
            "request_id",
            "properties",
        )
    )


def _place() -> list[Column]:
    return [F.col(name) for name in ("topic", "partition", "subscription")]
