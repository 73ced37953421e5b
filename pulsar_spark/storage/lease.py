"""The lease of a bundle: who serves it, as a file renewed every few seconds (see lease_file).

The lease only says who is alive; what keeps two brokers apart is the fenced commit of a round. So a file is enough, and
an idle broker writes no table.

Who wants the bundle of a broker that serves it says so in the file, which that broker reads whenever it renews its
lease. One that hands bundles over leaves the wish there, ends its round, and lets its lease be the other's, so that no
third one is quicker; one that does not renews it without the wish, by which who asked knows.
"""

import os
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease_file import LeaseFile

LEASE_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class Holder(NamedTuple):
    """Who holds a lease, on which machine and process, until when (Unix time; of no matter in an object store). A
    broker's sign that it is there is a lease, too, which it holds on itself."""

    broker_id: str
    host: str
    pid: int
    until: float
    wanted: dict | None = None
    """By which broker, with its ``host`` and ``pid``, it is wanted next. The file has it only then: releases that do
    not know it read such a file as none."""


class BundleLease:
    """One broker's view of the lease of its bundle."""

    def __init__(self, layout: Layout, broker_id: str):
        self.path = layout.bundle_folder() / "lease.json"
        self.broker_id = broker_id
        self.is_wanted = False
        """Was it wanted by another when it was renewed, and was that left there?"""
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

    def take(self, *, hands_over: bool = False) -> bool:
        """Take or renew the lease; False when another broker holds it. That it is wanted stays in it if this broker
        *hands_over*."""

        def taken(said: Holder | None) -> dict | None:
            self.is_wanted = False
            if self._is_others(said):
                return None
            wanted = said.wanted if hands_over and self._held(said) else None
            self.is_wanted = wanted is not None
            return {**self._said(is_held=True), **({"wanted": wanted} if wanted else {})}

        return self._file.change(taken)

    def let_go(self) -> None:
        """End the lease, if it is this broker's; then it is of who wanted it."""

        def ended(said: Holder | None) -> dict | None:
            if not self._held(said) or self._is_others(said):
                return None
            return {**said.wanted, "is_held": True} if said.wanted else self._said(is_held=False)

        self._file.change(ended)

    def ask(self) -> bool:
        """Ask the broker that has the lease for it; False where none has it, or another has asked."""
        me = {"broker_id": self.broker_id, "host": socket.gethostname(), "pid": os.getpid()}

        def asked(said: Holder | None) -> dict | None:
            if not self._is_others(said) or said.wanted not in (None, me):
                return None
            return {**said._asdict(), "wanted": me, "is_held": True}

        return self._file.change(asked)

    def withdraw(self) -> None:
        """Want it no more."""

        def withdrawn(said: Holder | None) -> dict | None:
            if not self._is_others(said) or not self.is_asked(said):
                return None
            return {name: value for name, value in said._asdict().items() if name != "wanted"} | {"is_held": True}

        self._file.change(withdrawn)

    def is_asked(self, holder: Holder) -> bool:
        """Does the lease say still that this broker wants it?"""
        return holder.wanted is not None and holder.wanted.get("broker_id") == self.broker_id

    def _held(self, said: Holder | None) -> Holder | None:
        return said if self._file.is_held(said) else None

    def _is_others(self, said: Holder | None) -> bool:
        holder = self._held(said)
        return holder is not None and holder.broker_id != self.broker_id

    def _said(self, *, is_held: bool) -> dict:
        return {"broker_id": self.broker_id, "is_held": is_held}
