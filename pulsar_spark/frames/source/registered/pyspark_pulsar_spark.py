"""Spark finds ``format("pulsar_spark")`` here: it asks each module on Python's path whose name begins with ``pyspark_``
for its ``DefaultSource``. Installing puts this module beside the package (see ``setup.cfg``)."""

from pulsar_spark.frames.source.data_source import PulsarSparkSource as DefaultSource

__all__ = ["DefaultSource"]
