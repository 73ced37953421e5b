"""The plugin's fixtures, also where it is not installed."""

from pulsar_spark.testing.plugin import (  # noqa: F401
    _new_pulsar_root,
    _pulsar_time,
    pulsar_broker,
    pulsar_client,
    pulsar_clock,
    pulsar_root,
    pulsar_service_url,
)
