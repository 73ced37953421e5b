"""When a broker has something to do without a request."""

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.gathering.candidates import next_dues


def next_due(bundle: Bundle, now: int) -> int | None:
    """The earliest instant after *now* at which there is work, for tests whose two clocks agree; None without."""
    return min((due for due in next_dues(bundle, Instant(now, now)) if due is not None), default=None)
