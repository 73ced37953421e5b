"""What an operator reads of a broker: a line a minute of what happened, and a line for each refusal.

A minute without a round or a refusal has no line. Refusals that are alike (same error, subscription and consumer) have
one line a minute, and the next one says how many more there were; the minute's line counts them all. Rounds are told as
they come, the time by whoever looks often; nothing here waits.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable

from pulsar_spark.broker.drafts import Refusal, RoundResult

LINE_SECONDS = 60.0
MOST_NAMED = 10
"""Consumers a line names, at most."""
MOST_REFUSALS = 20
"""Lines about refusals a minute, at most; the others are counted."""
log = logging.getLogger(__name__)


class Journal:
    """One broker's. *clock* counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._since = clock()
        self._counts, self._seconds = Counter(), []
        self._refused: Counter = Counter()
        self._waited_since: float | None = None

    def note(self, result: RoundResult, seconds: float) -> None:
        """A round that took so many seconds; one that committed nothing counts only for what it refused."""
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
        """Nothing is left to do for a broker that is to end then, but consumers are connected: who they are, once a
        minute."""
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
        """Write the line of the minute, if one is over."""
        if self._clock() - self._since >= LINE_SECONDS:
            self.end_minute()

    def end_minute(self) -> None:
        """Write what was not written yet, and begin the next."""
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
