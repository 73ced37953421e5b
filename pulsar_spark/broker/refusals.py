"""Refused requests that nobody waits for the answer of, such as acknowledgements: counted, and said in the log now and
then."""
import logging
import time
from collections import Counter
from collections.abc import Callable

from pulsar_spark.broker.drafts import Request
from pulsar_spark.errors import InvalidRequest, shown

LOG_SECONDS = 10.0
KINDS = ("flow", "ack", "cumulative_ack", "negative_ack", "redeliver_all", "reconsume_later", "close", "keep_alive")
"""Those that may go unanswered."""

log = logging.getLogger(__name__)


class Refusals:
    """``counts`` says how many there were since the broker started, by kind and error."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._said_at = clock, None
        self.counts: Counter[tuple[str, str]] = Counter()
        self._new: Counter[tuple[str, str]] = Counter()
        self._last = ""

    def add(self, request: Request, refused: InvalidRequest) -> None:
        """Count one; the first is said at once, further ones together with :meth:`say`."""
        what = (request.kind if request.kind in KINDS else "unknown kind", type(refused).__name__)
        self.counts[what] += 1
        self._new[what] += 1
        self._last = (f"{request.kind} of client {shown(request.client_id)} on {shown(request.topic)} subscription "
                      f"{shown(request.subscription)}: {refused}")
        self.say()

    def say(self) -> None:
        """One line for all that came since the last one, if it is time."""
        if not self._new or (self._said_at is not None and self._clock() - self._said_at < LOG_SECONDS):
            return
        counts = ", ".join(f"{count} {kind} ({error})" for (kind, error), count in sorted(self._new.items()))
        log.warning("refused: %s; the last one: %s", counts, self._last[:1000])
        self._new.clear()
        self._said_at = self._clock()
