"""Progress of a DataFrame consumer: the last delivery, totals, and one log line per minute."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from pulsar_spark.frames.deliveries.delivery import Answer, Delivery

LOG_SECONDS = 60.0
COUNTS = ("deliveries", "messages", "acknowledged", "given_back", "put_off", "failures")
log = logging.getLogger(__name__)


class Progress:
    """The progress of one consumer. *consumer* is its name in the log; *clock* counts monotonic seconds."""

    def __init__(self, consumer: str, clock: Callable[[], float] = time.monotonic):
        self._consumer, self._clock, self._since = consumer, clock, clock()
        self._minute: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.last: dict | None = None

    def note(
        self,
        delivery: Delivery,
        reply: Answer,
        seconds: float,
        error: BaseException | None,
        failures: int,
        pause: float,
        *,
        deleted: int = 0,
    ) -> None:
        """Note a handled delivery with its *deleted* messages, the errors in a row (*failures*), and the *pause* in
        seconds."""
        back = sum(range_.messages for range_ in reply.given_back)
        counts = {
            "deliveries": 1,
            "messages": delivery.messages,
            "acknowledged": delivery.messages - back - len(reply.put_off),
            "given_back": back,
            "put_off": len(reply.put_off),
            "failures": int(error is not None),
        }
        self._minute.update(counts)
        self.totals.update(counts)
        self.last = {
            "round": delivery.round,
            "messages": delivery.messages,
            "acknowledged": len(reply.acknowledged),
            "given_back": len(reply.given_back),
            "put_off": len(reply.put_off),
            "deleted": deleted,
            "seconds": seconds,
            "error": None if error is None else repr(error),
            "failures": failures,
            "pause_seconds": pause,
        }

    def missing(self, deleted: int, error: BaseException | None) -> None:
        """Note a delivery with *deleted* messages and nothing to handle; with *error*, others are lost."""
        self.last = {
            "round": None,
            **dict.fromkeys(("messages", "acknowledged", "given_back", "put_off", "seconds", "failures"), 0),
            "deleted": deleted,
            "error": None if error is None else repr(error),
            "pause_seconds": 0.0,
        }

    def look(self) -> None:
        """Write the log line if a minute with any activity is over."""
        elapsed = self._clock() - self._since
        if elapsed < LOG_SECONDS:
            return
        minute, self._minute, self._since = self._minute, Counter(), self._clock()
        if minute:
            log.info("%s: %s", self._consumer, as_sentence(minute, elapsed), extra=fields(minute))


def as_sentence(counts: Counter[str], seconds: float | None = None) -> str:
    span = "" if seconds is None else f" in {seconds:.0f} s"
    return (
        f"{counts['deliveries']} deliveries of {counts['messages']} messages{span}, "
        f"{counts['acknowledged']} acknowledged, {counts['given_back']} given back, "
        f"{counts['put_off']} put off; the function raised {counts['failures']} times"
    )


def fields(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in COUNTS}
