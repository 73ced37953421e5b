"""The DataFrame API for Spark jobs and notebooks: publish frames and streams, consume subscriptions as frames, read
topics, list and send back dead letters, read statistics."""

from pulsar_spark.frames.consuming.consumer import consume
from pulsar_spark.frames.consuming.consumption import Consumption, active_consumptions
from pulsar_spark.frames.deliveries.delivery import Delivery
from pulsar_spark.frames.letters.dead_letters import count_by_cause, dead_letters, sent_letters
from pulsar_spark.frames.letters.reprocess import reprocess_dead_letters
from pulsar_spark.frames.letters.reprocess_run import Reprocessed
from pulsar_spark.frames.publishing.producer import Published, publish, publish_stream
from pulsar_spark.frames.reading.payloads import decode_payloads, register_plain_payload
from pulsar_spark.frames.reading.topic_messages import read_messages
from pulsar_spark.frames.sinks.delta_sink import to_delta
from pulsar_spark.frames.stats import stats
from pulsar_spark.frames.values.values import decode_values

__all__ = [
    "Consumption",
    "Delivery",
    "Published",
    "Reprocessed",
    "active_consumptions",
    "consume",
    "count_by_cause",
    "dead_letters",
    "decode_payloads",
    "decode_values",
    "publish",
    "publish_stream",
    "read_messages",
    "register_plain_payload",
    "reprocess_dead_letters",
    "sent_letters",
    "stats",
    "to_delta",
]
