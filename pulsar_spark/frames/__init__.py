"""The DataFrame API for Spark jobs and notebooks: publish frames and streams, consume subscriptions as frames, read
topics, list and send back dead letters, read statistics.

Each name is imported on first use: Spark's workers import this package for the data source alone."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_spark.frames.consuming.consumer import consume
    from pulsar_spark.frames.consuming.consumption import Consumption, active_consumptions
    from pulsar_spark.frames.deliveries.delivery import Delivery
    from pulsar_spark.frames.letters.dead_letters import count_by_cause, dead_letters, sent_letters
    from pulsar_spark.frames.letters.reprocess import reprocess_dead_letters
    from pulsar_spark.frames.letters.reprocess_run import Reprocessed
    from pulsar_spark.frames.publishing.producer import Published, publish, publish_stream
    from pulsar_spark.frames.reading.payloads import decode_payloads, register_plain_payload
    from pulsar_spark.frames.reading.topic_messages import read_messages
    from pulsar_spark.frames.root_stats import stats
    from pulsar_spark.frames.sinks.delta_sink import to_delta
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

if not TYPE_CHECKING:
    _NAMES = {
        "consuming.consumer": "consume",
        "consuming.consumption": "Consumption active_consumptions",
        "deliveries.delivery": "Delivery",
        "letters.dead_letters": "count_by_cause dead_letters sent_letters",
        "letters.reprocess": "reprocess_dead_letters",
        "letters.reprocess_run": "Reprocessed",
        "publishing.producer": "Published publish publish_stream",
        "reading.payloads": "decode_payloads register_plain_payload",
        "reading.topic_messages": "read_messages",
        "sinks.delta_sink": "to_delta",
        "root_stats": "stats",
        "values.values": "decode_values",
    }
    _HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Import the public *name* from its home, once."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
