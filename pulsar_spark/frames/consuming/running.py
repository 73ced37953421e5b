"""The consumers of this process: they are found when a notebook cell runs again, and stopped when the process ends."""

import atexit
import threading
from datetime import datetime
from typing import NamedTuple, Protocol

from pulsar_spark.errors import ConsumerBusy
from pulsar_spark.protocol.delays.durations import shown_seconds

EXIT_SECONDS = 30.0
"""How long the process waits at its end for a current delivery; a thread that lives on may crash it in native code."""

_lock = threading.Lock()


class Seat(NamedTuple):
    """The subscription that a consumer is connected to, on some partitions of a topic."""

    root: str
    topic: str
    partitions: tuple[int, ...]
    subscription: str


class Runs(Protocol):
    start_time: datetime

    @property
    def consumer_name(self) -> str: ...

    @property
    def seat(self) -> Seat: ...

    @property
    def is_active(self) -> bool: ...

    def stop(self, timeout: float | None = None) -> object: ...


_running: list[Runs] = []


def active() -> list[Runs]:
    """The consumers of this process that have started and not ended, oldest first."""
    with _lock:
        return [consumption for consumption in _running if consumption.is_active]


def enter(consumption: Runs) -> None:
    """Register *consumption* until it leaves, and stop it at exit."""
    with _lock:
        _running.append(consumption)
    atexit.register(consumption.stop, EXIT_SECONDS)


def leave(consumption: Runs) -> None:
    atexit.unregister(consumption.stop)
    with _lock:
        if consumption in _running:
            _running.remove(consumption)


def replace(seat: Seat, consumer_name: str, timeout: float) -> None:
    """Stop the consumer of that name and seat in this process; :class:`ConsumerBusy` if it does not end within
    *timeout* seconds."""
    for former in active():
        if former.seat == seat and former.consumer_name == consumer_name:
            former.stop(timeout)
            if former.is_active:
                raise ConsumerBusy(
                    f"consumer {consumer_name!r} of subscription {seat.subscription!r} runs in this process "
                    f"and its function did not return within {shown_seconds(timeout)}: consume again after it has"
                )


def explained(refused: ConsumerBusy, seat: Seat) -> ConsumerBusy:
    holder = next((consumption for consumption in active() if consumption.seat == seat), None)
    if holder is None:
        return refused
    return type(refused)(
        f"{refused}. It is consumer {holder.consumer_name!r} of this process, started at "
        f"{holder.start_time:%H:%M:%S} UTC: stop() it (active_consumptions() lists it), or consume with a "
        "consumer_name: a new consumer replaces the running one of that name"
    )
