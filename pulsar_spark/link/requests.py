"""Rows of requests to the broker.

Ids, ``<client id>-<number>``, sort in the order of creation.
"""

import itertools
from contextlib import suppress
from datetime import datetime, timezone

from pulsar_spark.errors import Timeout
from pulsar_spark.protocol.delays.delays import CANCEL
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.starting import starting
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.table_specs import VALID_UNTIL

EXPIRING = frozenset(
    {"subscribe", "seek", "unsubscribe", "create_subscription", "skip", "clear_backlog", "expire", "policy", "unload"}
    | {"reschedule"}
)
"""Kinds that expire when nobody waits for the reply any more. Of requests about deliveries only cancellations do."""

ANSWER_SECONDS = 1.0
LATEST_MS = 10**15


class RequestMaker:
    """Numbers the requests of a client."""

    def __init__(self, client_id: str):
        self.client_id = client_id
        self._numbers = itertools.count()

    def make(self, kind: str, **columns) -> dict:
        """A row; missing columns are null."""
        return {
            "request_id": f"{self.client_id}-{next(self._numbers):012d}",
            "kind": kind,
            "client_id": self.client_id,
            "request_time": datetime.now(timezone.utc),
            **columns,
        }


def valid_for(rows: list[dict], timeout: float) -> list[dict]:
    """*rows* with the instant after which the broker refuses them, so that what failed with Timeout is not done
    later."""
    until = now_micros() / 1e6 + timeout - min(ANSWER_SECONDS, timeout / 10)
    if until * 1000 > LATEST_MS:
        return rows
    return [
        dict(row, properties={**(row.get("properties") or {}), VALID_UNTIL: str(int(until * 1000))})
        if row["kind"] in EXPIRING or CANCEL in (row.get("properties") or ())
        else row
        for row in rows
    ]


def no_answer(root: AnyPath, timeout: float) -> Timeout:
    return Timeout(f"no broker answered on root {str(root)!r} within {shown_seconds(timeout)}: {_what_to_do(root)}")


def _what_to_do(root: AnyPath) -> str:
    coming = None
    with suppress(OSError):  # only a hint
        coming = starting(Layout(root))
    if coming is not None:
        return f"{coming}: try again when it serves"
    return f"start one with 'pulsar-spark broker --root {root}'"
