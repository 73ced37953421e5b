"""The DataFrame API for Spark jobs and notebooks: publish frames and streams, consume subscriptions as frames, read
topics, list and send back dead letters, read statistics.
"""

from pulsar_spark.frames.consumer import consume
from pulsar_spark.frames.consumption import Consumption
from pulsar_spark.frames.dead_letters import count_by_cause, dead_letters, sent_letters
from pulsar_spark.frames.delivery import Delivery
from pulsar_spark.frames.delta_sink import to_delta
from pulsar_spark.frames.payloads import decode_payloads, register_plain_payload
from pulsar_spark.frames.producer import Published, publish, publish_stream
from pulsar_spark.frames.reprocess import reprocess_dead_letters
from pulsar_spark.frames.reprocess_run import Reprocessed
from pulsar_spark.frames.running import active_consumptions
from pulsar_spark.frames.stats import stats
from pulsar_spark.frames.topic_messages import read_messages
from pulsar_spark.frames.values import decode_values

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
