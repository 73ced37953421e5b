"""Requests to the brokers of other bundles, appended to their tables. A letter's topic may be in any bundle, which is
asked to create the initial subscription."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from pulsar_spark.broker.requests.request import Request
from pulsar_spark.storage.delta.sure_append import SureAppend
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.table_specs import REQUESTS

RETRY_SECONDS, TRIES = 0.1, 20


def ask_others(layout: Layout, requests: Sequence[Request]) -> None:
    """Append *requests* to the tables of their topics' bundles; OSError if one cannot be written."""
    by_bundle: dict[str, tuple[Layout, list[Request]]] = {}
    for request in requests:
        found = layout_of(layout, request.topic)
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
