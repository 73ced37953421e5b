"""The sign of a broker that is starting: which process, since when, and what it is doing.

Before a broker serves it starts Spark, reads its tables and begins its query, which takes ten seconds to minutes. Spark
may also end the query, which is then started again. The sign is a lease beside that of the root's first bundle. A
thread renews it, so it ends with its process. Where several brokers start at once it names one of them. It never says
whether a broker serves: the lease of a bundle says that.
"""

import datetime
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from pulsar_spark.errors import NotARoot
from pulsar_spark.protocol.durations import shown_seconds
from pulsar_spark.storage import forks
from pulsar_spark.storage.faults import is_fault_of_disk
from pulsar_spark.storage.layout import DEFAULT_BUNDLE, Layout
from pulsar_spark.storage.lease import LEASE_SECONDS
from pulsar_spark.storage.lease_file import LeaseFile
from pulsar_spark.storage.store import AnyPath
from pulsar_spark.storage.this_machine import runs
from pulsar_spark.storage.topics import prepare_root

RENEW_SECONDS = LEASE_SECONDS / 4
STARTS, QUERY = "a broker starts", "a broker starts its query again"
log = logging.getLogger(__name__)
_signs: dict[str, "StartingSign"] = {}
_lock = forks.module_lock()


class Starting(NamedTuple):
    """The content of the sign: ``what`` goes on, since ``since_ms`` (Unix time), and in which process of which host."""

    what: str
    since_ms: int
    host: str
    pid: int
    until: float

    def told(self) -> str:
        """The same as a text for people."""
        began = datetime.datetime.fromtimestamp(self.since_ms / 1000, datetime.UTC)
        seconds = max(0, round(time.time() - self.since_ms / 1000))
        return f"{self.what} (since {began:%H:%M:%S} UTC, {shown_seconds(seconds)}; process {self.pid} on {self.host})"


def starting(layout: Layout) -> Starting | None:
    """The starting broker of the root; None without one. It compares clocks, also in an object store, because nothing
    is decided by it."""
    said = _file(layout).read()
    if said is None or said.until <= time.time():
        return None
    return said if said.host != socket.gethostname() or runs(said.pid) else None


class StartingSign:
    """The sign of this process for one root. A thread writes it, so that a slow disk does not delay the start."""

    def __init__(self, layout: Layout, what: str):
        self._file, self._what, self._since_ms = _file(layout), what, time.time_ns() // 1_000_000
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="starting-sign", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Withdraw the sign: the broker serves, stands by or stops."""
        self._ended.set()
        self._thread.join(LEASE_SECONDS)

    def _run(self) -> None:
        is_ours = {"what": self._what, "since_ms": self._since_ms}
        self._write(lambda said: is_ours | {"is_held": True})
        while not self._ended.wait(RENEW_SECONDS):
            self._write(lambda said: is_ours | {"is_held": True})
        is_mine = (socket.gethostname(), os.getpid())
        self._write(lambda said: is_ours | {"is_held": False} if said and (said.host, said.pid) == is_mine else None)

    def _write(self, decide: Callable[[Starting | None], dict | None]) -> None:
        try:
            self._file.change(decide)
        except OSError as fault:  # it is for people: a broker starts without it
            log.debug("the sign %r cannot be written: %s", str(self._file.path), fault)


def announce_start(root: str | os.PathLike) -> None:
    """Make the root and put up the sign, before Spark is there. A folder that can be no root is refused at once; with
    a disk that fails for now the broker deals later."""
    layout = Layout(root)
    try:
        prepare_root(layout)
    except NotARoot as refused:
        if not is_fault_of_disk(refused):
            raise
    begin_starting(layout)


def begin_starting(layout: Layout, what: str = STARTS) -> None:
    """Put up the sign of this process until :func:`end_starting`; one that is there stays as it is."""
    if layout.bundle_folder().is_dir():
        with _lock:
            if str(layout.root) not in _signs:
                _signs[str(layout.root)] = StartingSign(layout, what)


def end_starting(layout: Layout) -> None:
    """Withdraw the sign of this process, if there is one."""
    with _lock:
        sign = _signs.pop(str(layout.root), None)
    if sign is not None:
        sign.end()


def _file(layout: Layout) -> LeaseFile:
    return LeaseFile(_path(layout), Starting, lambda: LEASE_SECONDS)


def _path(layout: Layout) -> AnyPath:
    return Layout(layout.root, DEFAULT_BUNDLE).bundle_folder() / "starting.json"
