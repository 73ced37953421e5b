"""The time that clients and brokers of this process see, moved by tests."""

import time
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from pulsar_spark.link.worker import live_workers
from pulsar_spark.storage import clock

if TYPE_CHECKING:
    from pulsar_spark.testing.plain_broker import PlainBroker

_SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Clock:
    """The clock of all clients and brokers of this process in its ``with`` block. It follows the machine's until
    :meth:`stop`; then only :meth:`advance` moves it. How long calls wait, as in ``receive(timeout_millis)``, is always
    real time."""

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._stopped_at: int | None = None
        self.brokers: list[PlainBroker] = []
        """Brokers whose clients keep their leases when time is moved."""

    def __enter__(self) -> "Clock":
        self._set()
        return self

    def __exit__(self, *_: object) -> None:
        clock.set_clocks()

    def _set(self) -> None:
        clock.set_clocks(self._time_ns, self._ahead_ns / _SECOND)

    def _time_ns(self) -> int:
        return (time.time_ns() if self._stopped_at is None else self._stopped_at) + self._ahead_ns

    @property
    def is_stopped(self) -> bool:
        return self._stopped_at is not None

    def stop(self) -> None:
        """Let time stand still."""
        if self._stopped_at is None:
            self._stopped_at = time.time_ns()

    def now(self) -> datetime:
        """The time, in UTC."""
        return _EPOCH + timedelta(microseconds=self._time_ns() // 1000)

    def advance(self, **duration: Any) -> datetime:
        """Let ``timedelta(**duration)`` pass at once, and return the time. What comes due happens before the call
        returns: delayed and returned messages are delivered, acknowledgement timeouts end, messages expire."""
        ahead = timedelta(**duration)
        if ahead < timedelta(0):
            raise ValueError(f"clock.advance: {ahead} would turn time back: give a positive duration")
        for broker in self.brokers:
            broker.settle()
        with ExitStack() as paused:
            for broker in self.brokers:
                paused.enter_context(broker.paused())
                broker.keep_leases(ahead // timedelta(microseconds=1))
            self._ahead_ns += 1000 * (ahead // timedelta(microseconds=1))
            self._set()
        for worker in live_workers():
            worker.wake()
        for broker in self.brokers:
            broker.settle()
        return self.now()
