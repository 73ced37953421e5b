"""The lease of a bundle: which broker serves it, as a file renewed every few seconds.

It only shows which broker is alive; the fenced commit of a round keeps brokers apart. A broker that wants the bundle
writes that into the file. The holder passes the lease on after its round, or removes the wish.
"""

import os
import socket
import time
from typing import NamedTuple

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease_file import LeaseFile

LEASE_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class Holder(NamedTuple):
    """The holder of a lease, or a broker's own sign of life; ``until`` is Unix time, unused in an object store."""

    broker_id: str
    host: str
    pid: int
    until: float
    wanted: dict | None = None
    """The broker, with ``host`` and ``pid``, that wants the lease next, if any."""


class BundleLease:
    """One broker's view of the lease of its bundle."""

    def __init__(self, layout: Layout, broker_id: str):
        self.path = layout.bundle_folder() / "lease.json"
        self.broker_id = broker_id
        self.is_wanted = False
        """Did another broker want the lease when it was last renewed, and was its wish kept?"""
        self._file = LeaseFile(self.path, Holder, lambda: LEASE_SECONDS)

    def holder(self) -> Holder | None:
        current = self._file.read()
        return current if self._file.is_alive(current) else None

    def sure_holder(self) -> Holder | None:
        """The live holder; in an object store, waits to see a renewal."""
        holder = first = self.holder()
        while holder is not None and holder == first and not self._file.is_certain_at_once:
            time.sleep(_LOOK_SECONDS)
            holder = self.holder()
        return holder

    def take(self, *, hands_over: bool = False) -> bool:
        """Take or renew the lease; False if another broker holds it. *hands_over* keeps another's wish."""

        def taken(current: Holder | None) -> dict | None:
            self.is_wanted = False
            if self._is_others(current):
                return None
            wanted = current.wanted if hands_over and current is not None and self._file.is_alive(current) else None
            self.is_wanted = wanted is not None
            return {"broker_id": self.broker_id, "is_held": True, **({"wanted": wanted} if wanted else {})}

        return self._file.change(taken)

    def release(self) -> None:
        """End this broker's lease, or pass it to the broker that wants it."""

        def ended(current: Holder | None) -> dict | None:
            if current is None or not self._file.is_alive(current) or self._is_others(current):
                return None
            return (
                {**current.wanted, "is_held": True}
                if current.wanted
                else {"broker_id": self.broker_id, "is_held": False}
            )

        self._file.change(ended)

    def request(self) -> bool:
        """Write that this broker wants the lease; False without a holder, or if another broker did so first."""
        me = {"broker_id": self.broker_id, "host": socket.gethostname(), "pid": os.getpid()}

        def requested(current: Holder | None) -> dict | None:
            if current is None or not self._is_others(current) or current.wanted not in (None, me):
                return None
            return {**current._asdict(), "wanted": me, "is_held": True}

        return self._file.change(requested)

    def withdraw(self) -> None:
        """Remove the wish that :meth:`request` wrote."""

        def withdrawn(current: Holder | None) -> dict | None:
            if current is None or not self._is_others(current) or not self.has_requested(current):
                return None
            return {name: value for name, value in current._asdict().items() if name != "wanted"} | {"is_held": True}

        self._file.change(withdrawn)

    def has_requested(self, holder: Holder) -> bool:
        return holder.wanted is not None and holder.wanted.get("broker_id") == self.broker_id

    def _is_others(self, current: Holder | None) -> bool:
        return current is not None and self._file.is_alive(current) and current.broker_id != self.broker_id
