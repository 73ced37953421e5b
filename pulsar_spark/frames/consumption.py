"""A running DataFrame consumer, as its user has it: looked at, waited for, stopped.

**The end.** A consumer ends when it is told to, when its Spark session is stopped, or with the process, which waits for
a delivery that is being handled (see ``running``). The end of its ``with`` block raises nothing: what ended it is
logged, and :meth:`Consumption.exception` tells it.
"""

import logging
import threading

from pulsar_spark.described import Described
from pulsar_spark.errors import ConsumerBusy
from pulsar_spark.frames import running
from pulsar_spark.frames.consuming import Consuming
from pulsar_spark.frames.progress import fields
from pulsar_spark.protocol.durations import shown_seconds

STOP_SECONDS = 60.0
"""How long the end of a ``with`` block waits for a delivery that is being handled."""
log = logging.getLogger(__name__)


class Consumption(Described, Consuming):
    """A running consumer, in the manner of a StreamingQuery. Made by :func:`consume`; a context manager that stops at
    its end."""

    def _facts(self) -> dict[str, object]:
        error = self.exception()
        facts: dict[str, object] = {
            "topic": str(self._topic.name),
            "subscription": self._options.subscription,
            "subscription_type": self._options.subscription_type,
            "consumer_name": self._options.consumer_name,
            "state": "consuming" if self.is_active else "ended",
            "messages": self.totals["messages"],
        }
        return facts | ({"error": type(error).__name__} if error else {})

    @property
    def consumer_name(self) -> str:
        """As it was given, or made up."""
        return self._options.consumer_name

    @property
    def is_active(self) -> bool:
        """Whether it still consumes."""
        return not self._ended.is_set()

    @property
    def last_progress(self) -> dict | None:
        """The last delivery handled: round, messages, acknowledged and given back ranges, messages put off, seconds,
        error; and, after an error, how many there were in a row (``failures``) and after how many seconds the function
        is called again (``pause_seconds``). None before the first."""
        return self._progress.last

    @property
    def totals(self) -> dict[str, int]:
        """What was done since the start: deliveries, messages, acknowledged, given_back, put_off, failures (calls of
        the function that raised)."""
        return fields(self._progress.totals)

    def stop(self, timeout: float | None = None) -> None:
        """End after the delivery that is being handled; what is not handled goes back. A pause after an error ends at
        once.

        Waits for the end, *timeout* seconds at most (0 = it only asks, as a signal handler does), unless it is the
        function that calls. Never raises.
        """
        self._ask_to_stop()
        if threading.current_thread() is not self._thread and timeout != 0 and not self._ended.wait(timeout):
            log.warning(
                "%s: its function has not returned within %s of being told to stop, and is not waited for any longer",
                self._line,
                shown_seconds(timeout),
            )

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end, *timeout* seconds at most; whether it came. Raises what ended it, or made an
        *available_now* run incomplete."""
        if not self._ended.wait(timeout):
            return False
        if self._error is not None:
            raise self._error
        return True

    def exception(self) -> BaseException | None:
        """While it runs, the error of the function's last call, None after one that returned. Once it has ended, what
        ended it, or was the function's last error in an *available_now* run."""
        return self._error if self._ended.is_set() and self._error is not None else self._backoff.error

    def __enter__(self) -> "Consumption":
        return self

    def __exit__(self, *_) -> None:
        self.stop(STOP_SECONDS)

    def _ask_to_stop(self) -> None:
        """Tell the thread to end; safe in a signal handler."""
        self._stopping.set()
        self._events.put((None, None))

    def _start(self) -> None:
        is_joined = False
        try:
            running.replace(self.seat, self._options.consumer_name, STOP_SECONDS)
            self._line.join()
            is_joined = True
        except ConsumerBusy as refused:
            raise running.explained(refused, self.seat) from refused
        finally:
            if not is_joined:  # an interrupted cell, too, must leave nobody behind who holds the subscription
                self._ended.set()
                self._line.hang_up()
        log.info(
            "%s consumes (%s); a subscription that is new starts at %s",
            self._line,
            self._options.subscription_type,
            self._options.initial_position,
        )
        running.enter(self)
        self._thread.start()
