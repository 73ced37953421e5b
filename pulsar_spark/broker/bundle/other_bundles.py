"""Requests to the brokers of other bundles, appended to their tables."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from pulsar_spark.broker.requests.request import Request
from pulsar_spark.protocol.topics.bundles import BundleRange
from pulsar_spark.storage.delta.sure_append import SureAppend
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.table_specs import REQUESTS

RETRY_SECONDS, TRIES = 0.1, 20
SENT_AGAIN = 60_000_000
"""Microseconds after which the same request is sent to another bundle again."""


class SentRequests:
    """The requests that letters make, of which those about other bundles' topics are sent there."""

    def __init__(self) -> None:
        self.sent: dict[tuple, int] = {}
        """When each was sent, by topic, partition and subscription."""

    def send_others(self, layout: Layout, served: BundleRange, requests: list[Request], now: int) -> list[Request]:
        """Send those of *requests* outside *served*, at *now*; returns the rest."""
        others = [request for request in requests if not served.holds(request.topic or "")]
        self.sent = {what: at for what, at in self.sent.items() if at <= now < at + SENT_AGAIN}
        fresh = [each for each in others if each[4:7] not in self.sent]
        self.sent.update((each[4:7], now) for each in fresh)
        ask_others(layout, fresh)
        return [request for request in requests if request not in others]


def ask_others(layout: Layout, requests: Sequence[Request]) -> None:
    """Append *requests* to the tables of their topics' bundles; OSError if one cannot be written."""
    by_bundle: dict[str, tuple[Layout, list[Request]]] = {}
    for request in requests:
        found = layout_of(layout, request.topic or "")
        by_bundle.setdefault(found.bundle, (found, []))[1].append(request)
    for found, theirs in by_bundle.values():
        append_requests(found, theirs)


def append_requests(layout: Layout, requests: Sequence[Request]) -> None:
    """Append *requests* to this bundle's table, in one commit."""
    tries = iter(range(TRIES))

    def wait(unclear: Exception) -> None:
        if next(tries, None) is None:
            raise unclear
        time.sleep(RETRY_SECONDS)

    names = [name for name in Request._fields if name in REQUESTS.schema.names]
    rows = [
        {name: getattr(request, name) for name in names} | {"request_time": datetime.now(UTC)} for request in requests
    ]
    if rows:
        path = layout.broker_table(REQUESTS.name)
        SureAppend(path, "request_id", makes_checkpoints=False).append(REQUESTS.rows(rows), wait)
