"""Read dead letter topics as DataFrames: each letter's origin, cause, and the job that sent it back.

A letter's properties (see ``protocol.redelivery.letters``) name the *first* origin; the name of a default dead letter
topic has the subscription on which it died last."""

import os

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.client.model.enums import ConsumerCryptoFailureAction
from pulsar_spark.frames.reading.payloads import Decoding
from pulsar_spark.frames.reading.topic_messages import messages_at
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS, PAYLOAD_ERROR
from pulsar_spark.protocol.redelivery.letters import (
    ATTEMPTS,
    CAUSE,
    DEAD_LETTER_SUFFIX,
    ORIGIN_MESSAGE_ID,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    RECONSUME_TIMES,
    REPLAYS,
    UNKNOWN_CAUSE,
)
from pulsar_spark.storage.cursor_ledger.reprocessing import Reprocessing
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import check_opens
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.spark.spark_root import layout_for_frames
from pulsar_spark.storage.topics.letter_topics import letter_topic
from pulsar_spark.storage.topics.topics import Topic, check_layout
from pulsar_spark.table_specs import DELIVERED, KEY_FLAGS, MESSAGES, REPROCESSING

LETTER_COLUMNS = (
    *"message_id partition position origin_topic origin_message_id subscription cause attempts replays".split(),
    *"publish_time event_time partition_key ordering_key".split(),
    *KEY_FLAGS,
    *("properties", "payload", *ENCODING_COLUMNS, PAYLOAD_ERROR),
)
_WITHOUT_KEYS = Decoding(None, ConsumerCryptoFailureAction.CONSUME)


def dead_letters(
    spark: SparkSession, root: str | os.PathLike, topic: str, *, subscription: str | None = None
) -> DataFrame:
    """Read the letters of a dead letter topic, one row each: :data:`LETTER_COLUMNS` and ``sent_by``, the job that last
    sent the letter back, or null.

    *spark* reads the root in the folder *root*; no broker is needed. *topic* is the dead letter topic; with
    *subscription* it is the topic on which the letters died. The frame is empty if no message has died yet.

    ``message_id``, ``position`` and ``publish_time`` are the letter's own. Without a cause in the letter, ``cause`` is
    ``unknown`` and ``attempts`` is null. Payloads are decompressed. An encrypted or damaged payload stays as stored;
    only then ``encryption_keys`` and ``compression`` are not null (see ``decode_payloads``). If the sizes of a letter's
    chunks contradict its metadata, the payload is null and ``payload_error`` says why.

    :class:`TopicNotFound` if the topic does not exist and is no subscription's dead letter topic,
    :class:`SubscriptionNotFound` if the topic has only other subscriptions."""
    layout = layout_for_frames(spark, root)
    found = letter_topic(layout, topic, subscription)
    if found is None:
        return _no_letters(spark)
    letters = read_letters(spark, layout, found, TableLog(found.path).latest())
    return letters.join(_last_senders(spark, layout, found), on="message_id", how="left").select(
        *LETTER_COLUMNS, "sent_by"
    )


def count_by_cause(
    spark: SparkSession, root: str | os.PathLike, topic: str, *, subscription: str | None = None
) -> DataFrame:
    """Count the letters of each cause, largest count first.

    Columns: ``cause``, ``letters``, ``sent`` (letters that some job has sent back), ``first_time`` and ``last_time``
    (when letters were written). *spark*, *root*, *topic* and *subscription* are those of :func:`dead_letters`."""
    letters = dead_letters(spark, root, topic, subscription=subscription)
    counted = letters.groupBy("cause").agg(
        F.count("*").alias("letters"),
        F.count("sent_by").alias("sent"),
        F.min("publish_time").alias("first_time"),
        F.max("publish_time").alias("last_time"),
    )
    return counted.orderBy(F.desc("letters"), "cause")


def sent_letters(spark: SparkSession, root: str | os.PathLike) -> DataFrame:
    """The letters that jobs have sent back, one row per letter and job; *spark* reads the root in the folder *root*.

    Columns: ``job_id``; ``topic`` and ``message_id`` of the letter; ``destination``, ``cause`` and ``replays``;
    ``publish_id``, the commit in which the message was sent; ``number``, its sequence id there; ``job_time``, when the
    job recorded it."""
    layout = layout_for_frames(spark, root)
    return _sent(spark, layout).select(
        "job_id", "topic", "message_id", "destination", "cause", "replays", "publish_id", "number", "job_time"
    )


def read_letters(
    spark: SparkSession,
    layout: Layout,
    topic: Topic,
    version: int,
    ranges: list[PositionRange] | None = None,
    *,
    as_stored: bool = False,
) -> DataFrame:
    """The letters of *topic* as of *version*, or those in *ranges* of positions, with :data:`LETTER_COLUMNS`. Chunked
    letters before the ranges may come too. Payloads are decompressed as far as possible without keys, or left
    *as_stored*."""
    columns = [*DELIVERED, *KEY_FLAGS, *ENCODING_COLUMNS]
    messages, has_encoded = messages_at(spark, layout, topic, version, columns, ranges=ranges)
    if has_encoded and not as_stored:
        messages = _WITHOUT_KEYS.decoded(messages, keeps_stored=True)
    return _described(messages, str(topic.name))


def _no_letters(spark: SparkSession) -> DataFrame:
    messages = local_frame(spark, MESSAGES.schema.empty_table())
    absent = {name: F.lit(None).cast("bigint") for name in ("ledger_id", "position")}
    absent |= {PAYLOAD_ERROR: F.lit(None).cast("string")}
    letters = _described(messages.withColumns(absent), "")
    return letters.select(*LETTER_COLUMNS, F.lit(None).cast("string").alias("sent_by"))


def _described(messages: DataFrame, topic: str) -> DataFrame:
    def of_letter(name: str) -> Column:
        return F.col("properties")[name]

    batch_index = F.coalesce("batch_index", F.lit(-1))
    columns = {
        "message_id": F.format_string("(%d,%d,%d,%d)", "ledger_id", "entry_id", "partition", batch_index),
        "origin_topic": of_letter(REAL_TOPIC),
        "origin_message_id": of_letter(ORIGIN_MESSAGE_ID),
        "subscription": _subscription(topic),
        "cause": F.coalesce(of_letter(CAUSE), F.lit(UNKNOWN_CAUSE)),
        "attempts": F.coalesce(of_letter(ATTEMPTS).try_cast("int"), of_letter(RECONSUME_TIMES).try_cast("int")),
        "replays": F.coalesce(of_letter(REPLAYS).try_cast("int"), F.lit(0)),
    }
    return messages.withColumns(columns).select(*LETTER_COLUMNS)


def _subscription(dead_letter_topic_name: str) -> Column:
    """The subscription in a default dead letter topic's name, else that of the first origin."""
    origin = F.col("properties")[REAL_TOPIC]
    base = dead_letter_topic_name.removesuffix(DEAD_LETTER_SUFFIX)
    is_default = F.lit(base).startswith(F.concat(origin, F.lit("-"))) & F.lit(base != dead_letter_topic_name)
    return F.when(is_default, F.substring(F.lit(base), F.length(origin) + 2, F.lit(len(base)))).otherwise(
        F.col("properties")[REAL_SUBSCRIPTION]
    )


def _sent(spark: SparkSession, layout: Layout) -> DataFrame:
    check_layout(layout)
    table = Reprocessing(layout)
    if table.exists():
        check_opens(table.path)
    rows = (
        spark.read.format("delta").load(str(table.path))
        if table.exists()
        else local_frame(spark, REPROCESSING.schema.empty_table())
    )
    return rows.filter(F.col("kind") == "sent")


def _last_senders(spark: SparkSession, layout: Layout, topic: Topic) -> DataFrame:
    sent = _sent(spark, layout).filter(F.col("topic_id") == topic.topic_id)
    return sent.groupBy("message_id").agg(F.max_by("job_id", "job_time").alias("sent_by"))
