"""A retry letter topic with its subscription, so that what is published there is waited for."""
import uuid

from pulsar_spark.client.channel import Channel
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import resolve_topic


def prepare_retry_topic(layout: Layout, topic: str, subscription: str, timeout: float) -> None:
    """Create *topic* and its *subscription*, from its first message on, unless they are there. Creating needs a broker: :class:`Timeout` without one."""
    found, partitions = resolve_topic(layout, topic, create=True)
    there = {key.partition for key in read_latest(layout).cursors if (key.topic_id, key.subscription) == (found.topic_id, subscription)}
    missing = [partition for partition in partitions if partition not in there]
    if not missing:
        return
    channel = Channel(layout, f"reprocess-{uuid.uuid4().hex}")
    try:
        rows = [channel.make("create_subscription", topic=str(found.name), partition=partition, subscription=subscription,
                             properties={"initial_position": "Earliest"}) for partition in missing]
        for reply in channel.ask(rows, timeout):
            if reply.error is not None and not isinstance(reply.error, NotAllowedError):
                raise reply.error
    finally:
        channel.stop(timeout)
