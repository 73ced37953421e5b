"""Receipts: an acknowledgement that returns once the broker has committed it.

Rule: ``isAckReceiptEnabled`` of Pulsar's client (semantics 3.8).
"""

import threading
from collections.abc import Callable

from pulsar_spark.errors import PulsarSparkError, Timeout
from pulsar_spark.link import interrupts
from pulsar_spark.link.inbox import Reply
from pulsar_spark.protocol.delays.durations import shown_seconds


class Receipt:
    def __init__(self):
        self._lock = threading.Lock()
        self._is_there = threading.Event()
        self._missing = 0
        self._error: PulsarSparkError | None = None

    def expect(self, request_ids: list[str]) -> dict[str, Callable[[Reply], None]]:
        """Expect replies to these requests (none: complete at once); return a callback for each."""
        with self._lock:
            self._missing = len(request_ids)
        if not request_ids:
            self._is_there.set()
        return {request_id: self._answered for request_id in request_ids}

    def _answered(self, reply: Reply) -> None:
        with self._lock:
            self._missing -= 1
            self._error = self._error or reply.error
            is_complete = self._missing == 0
        if is_complete:
            self._is_there.set()

    def fail(self, error: PulsarSparkError) -> None:
        self._error = self._error or error
        self._is_there.set()

    def wait(self, timeout: float) -> None:
        """Wait until it is complete; raise its error, or :class:`Timeout`."""
        if not interrupts.until(self._is_there.wait, timeout):
            raise Timeout(
                f"no broker confirmed the acknowledgement within {shown_seconds(timeout)}: it may still take "
                "effect; start one with pulsar-spark broker"
            )
        if self._error is not None:
            raise self._error
