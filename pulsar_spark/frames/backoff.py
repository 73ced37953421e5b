"""Pauses after errors of a consumer's function: a second after the first, twice as long after each further one in a
row, a minute at most.

Two things grow by the same rule. The consumer pauses by how many deliveries failed in a row, so that a function that
cannot work now is not called over and over. An entry stays away by how often it came before, so that one that never
works takes little of what the others get done.
"""

from collections.abc import Callable

from pulsar_spark.protocol.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.storage.slices import PositionRange

PAUSES = MultiplierRedeliveryBackoff(min_delay_ms=1_000, max_delay_ms=60_000, multiplier=2)


class Backoff:
    """One consumer's. *clock* counts seconds and never goes back. ``error`` is the last error, None after a success."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._until = float("-inf")
        self.failures, self.error = 0, None

    def failed(self, error: BaseException) -> None:
        """The function raised: pause."""
        self.error = error
        self._until = self._clock() + PAUSES.delay_ms(self.failures) / 1000
        self.failures += 1

    def succeeded(self) -> None:
        """The function returned: the next error is the first again."""
        self.failures, self.error = 0, None

    @property
    def seconds_left(self) -> float:
        """What is left of the pause; 0 where there is none."""
        return max(0.0, self._until - self._clock())

    def delay_ms(self, held: PositionRange) -> int:
        """How long an entry that is given back stays away: as long as the pause, or longer if it came often."""
        return max(PAUSES.delay_ms(held.redelivery_count), round(self.seconds_left * 1000))
