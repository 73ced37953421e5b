"""Request rows: how a client asks something of the broker.

A request id is ``<client id>-<number>`` with the number padded, so that the ids of one commit sort as they were made.
"""

import itertools
import time
from contextlib import suppress
from datetime import datetime, timezone

from pulsar_spark.errors import Timeout
from pulsar_spark.protocol.delays import CANCEL
from pulsar_spark.protocol.durations import shown_seconds
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.starting import starting
from pulsar_spark.storage.store import AnyPath
from pulsar_spark.table_specs import VALID_UNTIL

EXPIRING = frozenset(
    {"subscribe", "seek", "unsubscribe", "create_subscription", "skip", "clear_backlog", "expire", "policy", "unload"}
    | {"reschedule"}
)
"""Kinds of requests that say until when they hold, where somebody waits for the answer. What is said of deliveries
holds whenever it is read, but for what cancels them."""

ANSWER_SECONDS = 1.0
LATEST_MS = 10**15


class RequestMaker:
    """Makes the rows of one client."""

    def __init__(self, client_id: str):
        self.client_id = client_id
        self._numbers = itertools.count()

    def make(self, kind: str, **columns) -> dict:
        """One row; columns left out are null."""
        return {
            "request_id": f"{self.client_id}-{next(self._numbers):012d}",
            "kind": kind,
            "client_id": self.client_id,
            "request_time": datetime.now(timezone.utc),
            **columns,
        }


def valid_for(rows: list[dict], timeout: float) -> list[dict]:
    """*rows* whose answers somebody waits for so many seconds, with the instant from which the broker refuses them:
    what failed with Timeout must not be done later. That is a little before the wait ends, so that the answer to what
    was done at the last moment is still heard."""
    until = time.time() + timeout - min(ANSWER_SECONDS, timeout / 10)
    if until * 1000 > LATEST_MS:
        return rows
    return [
        dict(row, properties={**(row.get("properties") or {}), VALID_UNTIL: str(int(until * 1000))})
        if row["kind"] in EXPIRING or CANCEL in (row.get("properties") or ())
        else row
        for row in rows
    ]


def no_answer(root: AnyPath, timeout: float) -> Timeout:
    """What is raised where nobody has answered for so many seconds."""
    return Timeout(f"no broker answered on root {str(root)!r} within {shown_seconds(timeout)}: {_what_to_do(root)}")


def _what_to_do(root: AnyPath) -> str:
    """What to do where no broker is heard: wait for one that starts, or start one."""
    coming = None
    with suppress(OSError):  # whether one starts is of no weight here
        coming = starting(Layout(root))
    if coming is not None:
        return f"{coming.told()}: try again when it serves"
    return f"start one with 'pulsar-spark broker --root {root}'"
