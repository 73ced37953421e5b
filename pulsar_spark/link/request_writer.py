"""Writes requests: one commit to ``requests`` at a time, never a request twice (see sure_append).

Requests of all clients of the process during a commit go into the next one. Only the broker writes checkpoints.
"""

import threading
import time
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from pulsar_spark.errors import ConnectError, PulsarSparkError, UnknownError
from pulsar_spark.link.shared_by_table import SharedByTable
from pulsar_spark.storage.delta.sure_append import SureAppend
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.table_specs import REQUESTS

RETRY_SECONDS = 0.2


class RequestWriter:
    """Of one client, for one thread at a time. *is_ending* says whether to give up; None: at once, without sharing
    commits."""

    def __init__(self, layout: Layout, is_ending: Callable[[], bool] | None):
        path = layout.broker_table(REQUESTS.name)
        self._is_ending = is_ending or (lambda: True)
        self._table = _SharedTable(path) if is_ending is None else _tables.of(path)

    @property
    def path(self) -> str:
        return self._table.path

    def write(self, rows: list[dict]) -> int:
        """Write *rows* in order; return their version. :class:`ConnectError` if the table is gone or cannot be
        written."""
        return self._table.write(rows, self._is_ending)


class _Part:
    def __init__(self, rows: list[dict], is_ending: Callable[[], bool]):
        self.rows, self.is_ending = REQUESTS.rows(rows), is_ending
        self.version: int | None = None
        self.error: PulsarSparkError | None = None

    @property
    def is_settled(self) -> bool:
        return self.version is not None or self.error is not None


class _SharedTable:
    """The thread whose turn it is writes for all of the process."""

    def __init__(self, path: AnyPath):
        self._table = SureAppend(path, "request_id", makes_checkpoints=False)
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._waiting: list[_Part] = []
        self._trouble: Exception | None = None
        """Why the thread whose turn it is cannot write."""
        self.path = self._table.path

    def write(self, rows: list[dict], is_ending: Callable[[], bool]) -> int:
        part = _Part(rows, is_ending)
        with self._lock:
            self._waiting.append(part)
        while not part.is_settled:
            if self._turn.acquire(timeout=RETRY_SECONDS):
                try:
                    if not part.is_settled:
                        with self._lock:
                            parts, self._waiting = self._waiting, []
                        self._write(parts)
                finally:
                    self._turn.release()
            elif is_ending():
                self._give_up(part)
        if part.version is None:
            raise part.error or UnknownError("the requests were not written")
        return part.version

    def _give_up(self, part: _Part) -> None:
        trouble = self._trouble
        with self._lock:
            if trouble is not None and part in self._waiting:
                self._waiting.remove(part)
                part.error = self._refusal(trouble)

    def _write(self, parts: list[_Part]) -> None:
        version: int | None = None
        error: PulsarSparkError = UnknownError("the thread that wrote the requests ended: see its traceback")
        try:
            rows = pa.concat_tables([part.rows for part in parts])
            version = self._table.append(rows, partial(self._wait, parts))
        except FileNotFoundError:
            error = ConnectError(f"{self.path!r} was deleted, or deleted and created again: open a new client")
        except PulsarSparkError as given:
            error = given
        finally:
            self._trouble = None
            for part in parts:
                part.version, part.error = version, error if version is None else None

    def _wait(self, parts: list[_Part], unclear: Exception) -> None:
        """Give up if all clients are ending."""
        if all(part.is_ending() for part in parts) or not self._is_there():
            raise self._refusal(unclear) from unclear
        self._trouble = unclear
        time.sleep(RETRY_SECONDS)

    def _refusal(self, unclear: Exception) -> ConnectError:
        return ConnectError(f"{self.path!r} cannot be written: {unclear}")

    def _is_there(self) -> bool:
        try:
            return self._table.exists()
        except OSError as fault:
            if not is_fault_of_disk(fault):
                raise
            return True


_tables = SharedByTable(_SharedTable)
