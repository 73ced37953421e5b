"""The lease of a bundle: who serves it, as a file renewed every few seconds (see lease_file).

The lease only says who is alive; what keeps two brokers apart is the fenced commit of a round. So a file is enough, and
an idle broker writes no table.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease_file import LeaseFile, is_held

LEASE_SECONDS = 10.0


class Holder(NamedTuple):
    """Who holds a lease, on which machine and process, until when (Unix time)."""

    broker_id: str
    host: str
    pid: int
    until: float


class BundleLease:
    """One broker's view of the lease of its bundle."""

    def __init__(self, layout: Layout, broker_id: str):
        self.path = Path(layout.bundle_folder()) / "lease.json"
        self.broker_id = broker_id
        self._file = LeaseFile(self.path, Holder)

    def holder(self) -> Holder | None:
        """Who holds the lease now; None when nobody alive does."""
        found = self._file.read()
        return found if found and is_held(*found[1:]) else None

    def take(self) -> bool:
        """Take or renew the lease; False when another broker holds it."""
        with self._file.lock():
            holder = self.holder()
            if holder and holder.broker_id != self.broker_id:
                return False
            self._write(time.time() + LEASE_SECONDS)
            return True

    def let_go(self) -> None:
        """End the lease, if it is this broker's."""
        with self._file.lock():
            holder = self.holder()
            if holder and holder.broker_id == self.broker_id:
                self._write(0.0)

    def _write(self, until: float) -> None:
        self._file.write(str(os.getpid()), broker_id=self.broker_id, until=until)
