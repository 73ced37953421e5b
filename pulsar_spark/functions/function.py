"""``pulsar.functions.function`` for scripts."""

from pulsar_spark.client.compat import Function as Function
