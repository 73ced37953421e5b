"""The DataFrame API for Spark jobs and notebooks: publish frames and streams, consume subscriptions as frames."""
from pulsar_spark.client.frames.consumer import Consumption, consume
from pulsar_spark.client.frames.delivery import Delivery
from pulsar_spark.client.frames.delta_sink import to_delta
from pulsar_spark.client.frames.producer import Published, publish, publish_stream

__all__ = ["Consumption", "Delivery", "Published", "consume", "publish", "publish_stream", "to_delta"]
