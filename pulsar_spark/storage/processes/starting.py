"""The sign of a starting broker: its process, since when, and what it does. It does not mean that a broker serves."""

import datetime
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from pulsar_spark.errors import NotARoot
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.storage.layout import DEFAULT_BUNDLE, Layout
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.processes.lease import LEASE_SECONDS
from pulsar_spark.storage.processes.lease_file import LeaseFile
from pulsar_spark.storage.processes.this_machine import runs
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.store.store import StrPath
from pulsar_spark.storage.topics.topics import prepare_root

RENEW_SECONDS = LEASE_SECONDS / 4
STARTS, QUERY = "a broker starts", "a broker starts its query again"
log = logging.getLogger(__name__)
_signs: dict[str, "StartingSign"] = {}
_lock = forks.module_lock()


class Starting(NamedTuple):
    """The sign: ``what`` goes on since ``since_ms`` (Unix time), on which host and in which process."""

    what: str
    since_ms: int
    host: str
    pid: int
    until: float

    def __str__(self) -> str:
        began = datetime.datetime.fromtimestamp(self.since_ms / 1000, datetime.UTC)
        seconds = max(0, round(time.time() - self.since_ms / 1000))
        return f"{self.what} (since {began:%H:%M:%S} UTC, {shown_seconds(seconds)}; process {self.pid} on {self.host})"


def starting(layout: Layout) -> Starting | None:
    sign = _file(layout).read()
    if sign is None or sign.until <= time.time():
        return None
    return sign if sign.host != socket.gethostname() or runs(sign.pid) else None


class StartingSign:
    def __init__(self, layout: Layout, what: str):
        self._file, self._what, self._since_ms = _file(layout), what, time.time_ns() // 1_000_000
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="starting-sign", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(LEASE_SECONDS)

    def _run(self) -> None:
        is_ours, seconds = {"what": self._what, "since_ms": self._since_ms}, 0.0
        while not self._ended.wait(seconds):
            self._write(lambda sign: is_ours | {"is_held": True})
            seconds = RENEW_SECONDS
        is_mine = (socket.gethostname(), os.getpid())
        self._write(lambda sign: is_ours | {"is_held": False} if sign and (sign.host, sign.pid) == is_mine else None)

    def _write(self, decide: Callable[[Starting | None], dict | None]) -> None:
        try:
            self._file.change(decide)
        except OSError as fault:  # only people read it: a broker starts without it
            log.debug(
                "the file %r, which says that a broker starts, cannot be written: %s", str(self._file.path), fault
            )


def announce_start(root: StrPath) -> None:
    """Make the root and the sign before Spark starts; :class:`NotARoot` unless the disk has a temporary fault."""
    layout = Layout(root)
    try:
        prepare_root(layout)
    except NotARoot as refused:
        if not is_fault_of_disk(refused):
            raise
    begin_starting(layout)


def begin_starting(layout: Layout, what: str = STARTS) -> None:
    """Make this process's sign, unless it exists, until :func:`end_starting`."""
    if layout.bundle_folder().is_dir():
        with _lock:
            if str(layout.root) not in _signs:
                _signs[str(layout.root)] = StartingSign(layout, what)


def end_starting(layout: Layout) -> None:
    with _lock:
        sign = _signs.pop(str(layout.root), None)
    if sign is not None:
        sign.end()


def _file(layout: Layout) -> LeaseFile[Starting]:
    path = Layout(layout.root, DEFAULT_BUNDLE).bundle_folder() / "starting.json"
    return LeaseFile(path, Starting, lambda: LEASE_SECONDS)
