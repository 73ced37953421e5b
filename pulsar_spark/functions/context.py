"""``pulsar.functions.context`` for scripts."""

from pulsar_spark.client.compat import Context as Context
