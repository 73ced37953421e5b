"""Acquire, renew and release a bundle's lease; delete files left by earlier brokers."""

import logging
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pulsar_spark.broker.service.backoff import Backoff, Waits
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import LEASE_SECONDS, BundleLease

STALE_SECONDS = 600.0
"""Inputs and checkpoints unchanged for this long are old. Only the holder of the lease deletes those of others, so no
old one is in use."""
LOOK_SECONDS = 0.2
JOIN_SECONDS = 5.0
log = logging.getLogger(__name__)


class LeaseKeeper:
    """The lease of one broker; *fail* gets :class:`BrokerFenced` if another takes it."""

    def __init__(
        self, layout: Layout, broker_id: str, stopping: threading.Event, waits: Waits, fail: Callable[[Exception], None]
    ):
        self._root, self._broker_id, self._stopping = layout.root, broker_id, stopping
        self._waits, self._fail = waits, fail
        self._lease = BundleLease(layout, broker_id)
        self._hand_over: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None

    def go_on_with(self, lease: BundleLease) -> None:
        self._lease = lease

    def hand_over_by(self, hand_over: Callable[[], None]) -> None:
        self._hand_over = hand_over

    def begin(self, standby_seconds: float | None, look: Callable[[], object] = lambda: None) -> bool:
        """Take the lease and keep it; False if stopped or out of time. Calls *look* meanwhile."""
        waited_since, stood_by_for = time.monotonic(), None
        backoff = Backoff(self._stopping, self._waits, "its lease cannot be taken")
        while not self._take(backoff):
            if self._stopping.is_set() or (
                standby_seconds is not None and time.monotonic() - waited_since > standby_seconds
            ):
                return False
            holder = self._lease.holder()
            if holder is not None and holder.broker_id != stood_by_for:
                stood_by_for = holder.broker_id
                log.info(
                    "broker %s stands by: %s serves %s (process %d on %s)",
                    self._broker_id,
                    holder.broker_id,
                    self._root,
                    holder.pid,
                    holder.host,
                )
            look()
            self._stopping.wait(LOOK_SECONDS)
        if stood_by_for:
            log.info("broker %s takes over %s from %s", self._broker_id, self._root, stood_by_for)
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return True

    def end(self) -> None:
        """Give the lease back. A second call does nothing, as the process may hold it again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if thread is not threading.current_thread():
            thread.join(JOIN_SECONDS)
        try:
            self._lease.release()
        except OSError as failed:
            log.warning(
                "the lease of %s could not be released and ends by itself in %g s: %s",
                self._root,
                LEASE_SECONDS,
                failed,
            )

    def _take(self, backoff: Backoff) -> bool:
        try:
            is_ours = self._lease.take()
        except OSError as fault:
            backoff.wait_for_disk(fault)
            return False
        backoff.end()
        return is_ours

    def _renew(self) -> None:
        """Renew the lease until the broker stops. It may end if the disk fails; rounds' fences separate brokers."""
        backoff = Backoff(self._stopping, self._waits, "its lease cannot be renewed")
        while not self._stopping.wait(0 if backoff.is_waiting else LEASE_SECONDS / 4):
            try:
                is_ours = self._lease.take(hands_over=self._hand_over is not None)
            except OSError as fault:
                backoff.pause(fault)  # any error: without this thread the lease would end silently
                continue
            backoff.end()
            if not is_ours:
                self._fail(BrokerFenced(f"another broker holds the lease of {str(self._root)!r}"))
            elif self._lease.is_wanted and self._hand_over is not None:
                self._hand_over()


def new_broker_id(mark: str = "") -> str:
    """A unique id of machine, process, *mark* and a random part."""
    return f"{socket.gethostname()}-{os.getpid()}-{mark}{uuid.uuid4().hex[:8]}"


def remove_stale_folders(layout: Layout, broker_id: str) -> None:
    """Delete old files of other brokers. A broker that needs its own again writes them."""
    before = time.time() - STALE_SECONDS
    for folder in (layout.local_folder() / "inputs", layout.checkpoint()):
        for found in folder.iterdir() if folder.is_dir() else ():
            if found.name != broker_id and _changed(found) < before:
                shutil.rmtree(found, ignore_errors=True)


def _changed(folder: Path) -> float:
    """When anything in the folder last changed; now, while it is deleted."""
    try:
        return max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    except FileNotFoundError:
        return time.time()
