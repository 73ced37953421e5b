"""The lease of a bundle: who serves it, as a file renewed every few seconds.

The lease only says who is alive; what keeps two brokers apart is the fenced commit of a round. So a file is enough, and
an idle broker writes no table. A holder on this machine whose process is gone has let go, whatever the file says.
"""

import json
import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from pulsar_spark.storage.layout import Layout

LEASE_SECONDS = 10.0


class Holder(NamedTuple):
    """Who holds a lease, on which machine and process, until when (Unix time)."""

    broker_id: str
    host: str
    pid: int
    until: float

    def is_alive(self) -> bool:
        if self.until <= time.time():
            return False
        return self.host != socket.gethostname() or _runs(self.pid)


class BundleLease:
    """One broker's view of the lease of its bundle."""

    def __init__(self, layout: Layout, broker_id: str):
        self.path = Path(layout.bundle_folder()) / "lease.json"
        self.broker_id = broker_id

    def holder(self) -> Holder | None:
        """Who holds the lease now; None when nobody alive does."""
        try:
            found = Holder(**json.loads(self.path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return found if found.is_alive() else None

    def take(self) -> bool:
        """Take or renew the lease; False when another broker holds it."""
        with self._lock():
            holder = self.holder()
            if holder and holder.broker_id != self.broker_id:
                return False
            self._write(time.time() + LEASE_SECONDS)
            return True

    def let_go(self) -> None:
        """End the lease, if it is this broker's."""
        with self._lock():
            holder = self.holder()
            if holder and holder.broker_id == self.broker_id:
                self._write(0.0)

    def _write(self, until: float) -> None:
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(Holder(self.broker_id, socket.gethostname(), os.getpid(), until)._asdict()))
        os.replace(fresh, self.path)

    def _lock(self) -> FileLock:
        return FileLock(self.path.with_suffix(".lock"))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, IndexError):
        return False
