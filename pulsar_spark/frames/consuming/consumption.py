"""The user's handle of a running DataFrame consumer: inspect it, wait for it, stop it.

A consumer ends when it or its Spark session is stopped, or with the process, which waits for the current delivery (see
``running``)."""

import logging
import threading
from datetime import datetime, timezone

from pulsar_spark.described import Described
from pulsar_spark.errors import ConsumerBusy
from pulsar_spark.frames.consuming import running
from pulsar_spark.frames.consuming.consumer_thread import ConsumerThread
from pulsar_spark.frames.consuming.progress import fields
from pulsar_spark.frames.deliveries.delivery import Delivery
from pulsar_spark.protocol.delays.durations import shown_seconds

STOP_SECONDS = 60.0
"""How long leaving a ``with`` block waits for the current delivery."""
log = logging.getLogger(__name__)


def active_consumptions() -> list["Consumption"]:
    """The consumers of this process that have started and not ended, oldest first."""
    return [each for each in running.active() if isinstance(each, Consumption)]


class Consumption(Described):
    """A running consumer that :func:`consume` returns; used like a StreamingQuery. As a context manager it stops when
    its block ends, and raises nothing: :meth:`exception` returns the error."""

    def __init__(self, consumer: ConsumerThread):
        self._consumer = consumer
        consumer.on_end = lambda: running.leave(self)
        self.start_time = datetime.now(timezone.utc)

    def _facts(self) -> dict[str, object]:
        error, options = self.exception(), self._consumer.connection.options
        facts: dict[str, object] = {
            "topic": str(self._consumer.connection.topic.name),
            "subscription": options.subscription,
            "subscription_type": options.subscription_type,
            "consumer_name": options.consumer_name,
            "state": "consuming" if self.is_active else "ended",
            "messages": self.totals["messages"],
        }
        return facts | ({"error": type(error).__name__} if error else {})

    @property
    def consumer_name(self) -> str:
        """The given name, or the generated one."""
        return self._consumer.connection.options.consumer_name

    @property
    def seat(self) -> running.Seat:
        """The subscription and root that the consumer is connected to."""
        return self._consumer.connection.seat

    @property
    def is_active(self) -> bool:
        """Whether the consumer still runs."""
        return not self._consumer.has_ended.is_set()

    @property
    def current_delivery(self) -> Delivery | None:
        """The delivery that the function works on; None between two calls."""
        return self._consumer.current

    @property
    def last_progress(self) -> dict | None:
        """The last handled delivery: round, messages, acknowledged and given back ranges, messages put off, seconds,
        error. None before the first delivery.

        After an error it also has ``failures``, the number of errors in a row, and ``pause_seconds``, the pause before
        the next call."""
        return self._consumer.progress.last

    @property
    def totals(self) -> dict[str, int]:
        """Counts since the start: deliveries, messages, acknowledged, given_back, put_off, and failures (calls that
        raised)."""
        return fields(self._consumer.progress.totals)

    def stop(self, timeout: float | None = None) -> None:
        """Stop the consumer after the current delivery and give back everything that was not handled. A pause after an
        error ends at once.

        Waits for the end, for at most *timeout* seconds, but not with a *timeout* of 0 (for signal handlers), nor when
        the function itself calls it. It never raises."""
        consumer = self._consumer
        consumer.request_stop()
        if threading.current_thread() is consumer.thread or timeout == 0 or consumer.has_ended.wait(timeout):
            return
        log.warning(
            "%s: its function did not return within %s after stop(); stop() does not wait any longer",
            consumer.connection,
            shown_seconds(timeout or 0),
        )

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the consumer has ended, for at most *timeout* seconds; return whether it has ended. Raises the
        error that ended it, or left an *available_now* run incomplete."""
        if not self._consumer.has_ended.wait(timeout):
            return False
        if self._consumer.error is not None:
            raise self._consumer.error
        return True

    def exception(self) -> BaseException | None:
        """The error of the function's last call; None if that call returned. After the end, the error that ended the
        consumer comes first."""
        error = self._consumer.error if self._consumer.has_ended.is_set() else None
        return self._consumer.backoff.error if error is None else error

    def __enter__(self) -> "Consumption":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(STOP_SECONDS)

    def _start(self) -> None:
        consumer, is_joined = self._consumer, False
        connection, options = consumer.connection, consumer.connection.options
        try:
            running.replace(self.seat, options.consumer_name, STOP_SECONDS)
            connection.join()
            is_joined = True
        except ConsumerBusy as refused:
            raise running.explained(refused, self.seat) from refused
        finally:
            if not is_joined:  # an interrupted cell, too, must leave no consumer that holds the subscription
                consumer.has_ended.set()
                connection.disconnect()
        log.info(
            "%s consumes (%s); a new subscription starts at %s",
            connection,
            options.subscription_type,
            options.initial_position,
        )
        running.enter(self)
        consumer.thread.start()
