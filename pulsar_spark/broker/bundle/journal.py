"""A broker's log for operators: a line a minute, unless nothing happened, and a line for each refusal, equal ones once
a minute."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from pulsar_spark.broker.requests.drafts import Refusal, RoundResult

LINE_SECONDS = 60.0
MOST_NAMED = 10
"""Most consumers named in a line."""
MOST_REFUSALS = 20
"""Most lines about refusals a minute; others are counted."""
log = logging.getLogger(__name__)


class Journal:
    """The journal of one broker. *clock* counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._since = clock()
        self._counts: Counter = Counter()
        self._seconds: list[float] = []
        self._refused: Counter = Counter()
        self._waited_since: float | None = None

    def note(self, result: RoundResult, seconds: float) -> None:
        """Count a round of *seconds*; without a commit only its refusals count."""
        for refusal in result.refusals:
            self._note_refusal(refusal)
        self._counts["refused"] += len(result.refusals)
        if result.is_committed:
            self._seconds.append(seconds)
            self._counts.update(
                delivered=result.delivered_messages,
                acknowledged=result.acknowledged_entries,
                expired=result.expired_entries,
                letters=result.letters,
            )

    def note_waiting(self, names: Callable[[], list[str]]) -> None:
        """Log, once a minute, which consumers keep a finished broker from ending."""
        now = self._clock()
        if self._waited_since is None or now - self._waited_since >= LINE_SECONDS:
            self._waited_since, found = now, names()
            log.info(
                "all work is done; the broker ends when its %d connected consumers close, or their leases end: %s%s",
                len(found),
                ", ".join(found[:MOST_NAMED]),
                ", ..." if len(found) > MOST_NAMED else "",
            )

    def look(self) -> None:
        if self._clock() - self._since >= LINE_SECONDS:
            self.end_minute()

    def end_minute(self) -> None:
        """Write what was not written yet, and begin the next minute."""
        seconds, counts, elapsed = sorted(self._seconds), self._counts, self._clock() - self._since
        suppressed = {key: count - 1 for key, count in self._refused.items() if count > 1}
        self._since, self._counts, self._seconds, self._refused = self._clock(), Counter(), [], Counter()
        for (error, topic, subscription, consumer), count in suppressed.items():
            log.warning(
                "refused %d times more: %s, subscription %r of %s, consumer %r",
                count,
                error,
                subscription,
                topic,
                consumer,
            )
        if not seconds and not counts["refused"]:
            return
        p99_ms = round(1000 * seconds[(len(seconds) * 99 - 1) // 100]) if seconds else 0
        facts = {
            "seconds": round(elapsed),
            "rounds": len(seconds),
            **{name: counts[name] for name in ("delivered", "acknowledged", "refused", "letters")},
            "round_p99_ms": p99_ms,
        }
        log.info(
            "%d s: %s, %s delivered, %s acknowledged, %s%s refused, %s, 99 %% of rounds within %d ms",
            facts["seconds"],
            _counted(facts["rounds"], "round"),
            _counted(facts["delivered"], "message"),
            _counted(facts["acknowledged"], "entry"),
            f"{counts['expired']} expired, " if counts["expired"] else "",
            _counted(facts["refused"], "request"),
            _counted(facts["letters"], "letter"),
            p99_ms,
            extra=facts | {"expired": counts["expired"]},
        )

    def _note_refusal(self, refusal: Refusal) -> None:
        key = refusal.error, refusal.topic, refusal.subscription, refusal.consumer
        if key in self._refused or len(self._refused) < MOST_REFUSALS:
            self._refused[key] += 1
        if self._refused[key] == 1:
            log.warning(
                "refused %s: subscription %r of %s, partition %s, consumer %r: %s: %s",
                refusal.kind,
                refusal.subscription,
                refusal.topic,
                refusal.partition,
                refusal.consumer,
                refusal.error,
                refusal.text,
                extra=refusal._asdict(),
            )


def _counted(number: int, what: str) -> str:
    return f"{number} {what if number == 1 else what.removesuffix('y') + 'ies' if what.endswith('y') else what + 's'}"
