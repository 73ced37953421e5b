"""Request rows: how a client asks something of the broker.

A request id is ``<client id>-<number>`` with the number padded, so that the ids of one commit sort as they were made.
"""
import itertools
from datetime import datetime, timezone

LEASE_MS = 30_000


class RequestMaker:
    """Makes the rows of one client."""

    def __init__(self, client_id: str):
        self.client_id = client_id
        self._numbers = itertools.count()

    def make(self, kind: str, **columns) -> dict:
        """One row; columns left out are null."""
        return {"request_id": f"{self.client_id}-{next(self._numbers):012d}", "kind": kind, "client_id": self.client_id,
                "request_time": datetime.now(timezone.utc), **columns}
