"""Who received, acknowledged and gave back which messages when: a view over rounds and requests.

Rounds tell what the broker did, requests what clients asked for, by their clocks. Left out are refused requests, and
cancellations and reschedulings without effect. Requests name topics only, so earlier topics of that name share it.
Deletions by SQL appear at the first round that may have followed them."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.protocol.acknowledgement.packing import named_positions
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.delays.delays import CANCEL, POSITIONS
from pulsar_spark.protocol.redelivery.letters import RETRY_LETTER
from pulsar_spark.storage.entries.deletions import deletions_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import NO_POSITION
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.views.entries import cut_at_positions
from pulsar_spark.views.task_rows import topics_there

EVENTS = {
    "ack": "acknowledged",
    "cumulative_ack": "acknowledged",
    "negative_ack": "negatively_acknowledged",
    "redeliver_all": "redelivery_asked",
    "reconsume_later": "reconsume_later_asked",
    "reschedule": "rescheduled",
}
"""Kinds of requests and their event names."""
_NOTHING = "0"
"""The reply to a cancellation or rescheduling without any entry that still waits."""
_IS_DELIVERY = "kind = 'range' AND status = 'pending' AND delivery_round = round"
_DELETIONS = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("ack_set", pa.list_(pa.int64())),
        ("version", pa.int64()),
    ]
)


def all_events(rounds: DataFrame, requests: DataFrame, ledgers: DataFrame, root: str) -> DataFrame:
    """The columns of ``view_specs.HISTORY`` from *root*'s ``cursor_ledger``, ``requests`` and ``ledgers``; one row per
    event and range, in no order."""
    columns = [name for name in rounds.columns if name not in ("first", "last")]
    delivered = rounds.filter(_IS_DELIVERY)
    deliveries = rounds.sparkSession.sql(cut_at_positions("{delivered}", columns), delivered=delivered)
    did, requested = _done_by_broker(rounds, deliveries), _requested(rounds, requests)
    happened = did.unionByName(_of_deliveries(requested, deliveries), allowMissingColumns=True)
    happened = happened.unionByName(_deleted(rounds, ledgers, root), allowMissingColumns=True)
    named = (
        rounds.filter(F.col("consumer_name").isNotNull())
        .groupBy("consumer_id")
        .agg(F.max_by("consumer_name", "round").alias("consumer_name"))
    )
    return happened.join(named, on="consumer_id", how="left")


def _done_by_broker(rounds: DataFrame, deliveries: DataFrame) -> DataFrame:
    has_left = (F.col("kind") == "consumer") & F.coalesce("is_removed", F.lit(False))
    is_letter, is_retry = F.col("kind") == "letter", F.col("status").eqNullSafe(RETRY_LETTER)
    event = (
        F.when(F.col("kind") == "range", "delivered")
        .when(is_letter & is_retry, "retry_lettered")
        .when(is_letter, "dead_lettered")
        .when(has_left, "consumer_left")
    )
    times = rounds.filter(F.col("kind") == "round").select("round", F.col("round_time").alias("time"))
    return (
        rounds.filter(F.col("kind") != "range")
        .unionByName(deliveries)
        .withColumn("event", event)
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


def _requested(rounds: DataFrame, requests: DataFrame) -> DataFrame:
    replies = rounds.filter(F.col("kind") == "reply")
    refused = replies.filter(F.col("error").isNotNull()).select("request_id")
    without_effect = replies.filter(F.col("text") == _NOTHING).select("request_id")
    is_cancel = F.coalesce(F.col("properties")[CANCEL] == "true", F.lit(False))
    is_of_waiting = is_cancel | (F.col("kind") == "reschedule")
    event = F.create_map(*(F.lit(word) for pair in EVENTS.items() for word in pair))[F.col("kind")]
    event = F.when(is_cancel, "cancelled").otherwise(event)
    is_cumulative = F.coalesce(F.col("properties")["is_cumulative"] == "true", F.lit(False))
    names = F.coalesce(F.col("properties")[POSITIONS].isNotNull(), F.lit(False)) & is_of_waiting
    many = requests.filter(names)
    requests = requests.filter(~names).unionByName(many.mapInArrow(_by_position, many.schema))
    return (
        requests.filter(F.col("kind").isin(*EVENTS))
        .join(refused, on="request_id", how="left_anti")
        .join(without_effect.withColumn("has_no_effect", F.lit(True)), on="request_id", how="left")
        .filter(~is_of_waiting | F.col("has_no_effect").isNull())
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
            F.map_filter("properties", lambda name, _: name != POSITIONS).alias("properties"),
        )
    )


def _by_position(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        places, firsts, lasts = [], [], []
        for place, properties in enumerate(batch.column("properties").to_pylist()):
            stretches = ranges_of(np.sort(named_positions(dict(properties)[POSITIONS])))
            places += [place] * len(stretches)
            firsts += [first for first, _ in stretches]
            lasts += [last for _, last in stretches]
        columns = batch.take(pa.array(places, pa.int64())).to_pydict() | {"first": firsts, "last": lasts}
        yield pa.RecordBatch.from_pydict(columns, batch.schema)


def _of_deliveries(requested: DataFrame, deliveries: DataFrame) -> DataFrame:
    """The requests, with acknowledgements of a delivery round cut into the stretches that it delivered."""
    delivery_round = F.col("properties")["delivery_round"].cast("bigint")
    same = ["topic", "partition", "subscription", "consumer_id", "delivery_round"]
    delivered = deliveries.select(*same, F.col("first").alias("from"), F.col("last").alias("to"))
    is_unknown = F.col("from").isNull()
    is_inside = (F.col("from") <= F.col("last")) & (F.col("to") >= F.col("first"))
    cut = (
        requested.filter(delivery_round.isNotNull())
        .withColumn("delivery_round", delivery_round)
        .join(delivered, on=same, how="left")
        .filter(is_unknown | is_inside)
        .withColumns({"first": F.greatest("first", "from"), "last": F.least("last", "to")})
    )
    return requested.filter(delivery_round.isNull()).unionByName(cut.select(*requested.columns))


def _deleted(rounds: DataFrame, ledgers: DataFrame, root: str) -> DataFrame:
    topics = ledgers.filter((F.col("first_position") == NO_POSITION) & F.col("path").isNull())
    found = topics.select("topic", "topic_id").distinct().mapInArrow(_deletions(root), from_arrow_schema(_DELETIONS))
    followed = rounds.filter(F.col("kind") == "topic").select("topic_id", "partition", "ledger_id", "round")
    has_followed = (
        (F.col("d.topic_id") == F.col("f.topic_id"))
        & (F.col("d.partition") == F.col("f.partition"))
        & (F.col("f.ledger_id") >= F.col("d.version"))
    )
    seen = found.alias("d").join(followed.alias("f"), on=has_followed, how="left")
    seen = seen.groupBy("d.topic", "d.partition", "d.first", "d.last", "d.ack_set").agg(F.min("f.round").alias("round"))
    times = rounds.filter(F.col("kind") == "round").select("round", F.col("round_time").alias("time"))
    return seen.join(times, on="round", how="left").select(
        "time", F.lit("deleted").alias("event"), "topic", "partition", "first", "last", "ack_set", "round"
    )


def _deletions(root: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = Layout(root)
        for topic, row in topics_there(layout, batches):
            rows = [row | each._asdict() for each in deletions_of(layout_of(layout, topic.name), topic)]
            yield pa.RecordBatch.from_pylist(rows, _DELETIONS)

    return read


def _place() -> list[Column]:
    return [F.col(name) for name in ("topic", "partition", "subscription")]
