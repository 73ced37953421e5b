"""Spark finds ``format("pulsar")`` here, an error that names ``format("pulsar_spark")``, unless the Pulsar-Spark
connector is there: Spark takes a source of the JVM first."""

from pulsar_spark.frames.source.data_source import PulsarSource as DefaultSource

__all__ = ["DefaultSource"]
