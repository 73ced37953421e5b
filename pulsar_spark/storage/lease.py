"""The lease of a bundle: who serves it, as a file renewed every few seconds (see lease_file).

The lease only says who is alive; what keeps two brokers apart is the fenced commit of a round. So a file is enough, and
an idle broker writes no table.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease_file import LeaseFile

LEASE_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class Holder(NamedTuple):
    """Who holds a lease, on which machine and process, until when (Unix time; of no matter in an object store)."""

    broker_id: str
    host: str
    pid: int
    until: float


class BundleLease:
    """One broker's view of the lease of its bundle."""

    def __init__(self, layout: Layout, broker_id: str):
        self.path = layout.bundle_folder() / "lease.json"
        self.broker_id = broker_id
        self._file = LeaseFile(self.path, Holder, lambda: LEASE_SECONDS)

    def holder(self) -> Holder | None:
        """Who holds the lease now; None when nobody alive does."""
        return self._held(self._file.read())

    def sure_holder(self, pause: Callable[[float], None] = time.sleep) -> Holder | None:
        """The same for who has not looked before: in an object store, where a lease that nobody renews is told by
        looking, after that."""
        holder = first = self.holder()
        while holder is not None and holder == first and not self._file.is_told_at_once:
            pause(_LOOK_SECONDS)
            holder = self.holder()
        return holder

    def take(self) -> bool:
        """Take or renew the lease; False when another broker holds it."""
        return self._file.change(lambda said: None if self._is_others(said) else self._said(is_held=True))

    def let_go(self) -> None:
        """End the lease, if it is this broker's."""
        self._file.change(
            lambda said: self._said(is_held=False) if self._held(said) and not self._is_others(said) else None
        )

    def _held(self, said: Holder | None) -> Holder | None:
        return said if self._file.is_held(said) else None

    def _is_others(self, said: Holder | None) -> bool:
        holder = self._held(said)
        return holder is not None and holder.broker_id != self.broker_id

    def _said(self, *, is_held: bool) -> dict:
        return {"broker_id": self.broker_id, "is_held": is_held}
