"""The DataFrame API for Spark jobs and notebooks: publish frames and streams, consume subscriptions as frames."""
from pulsar_spark.client.frames.producer import Published, publish, publish_stream

__all__ = ["Published", "publish", "publish_stream"]
