"""Pauses after errors of a consumer's function: one second, doubled with each further error in a row, at most a
minute."""

from collections.abc import Callable

from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.storage.entries.slices import PositionRange

PAUSES = MultiplierRedeliveryBackoff(min_delay_ms=1_000, max_delay_ms=60_000, multiplier=2)


class Backoff:
    """The backoff of one consumer. *clock* counts monotonic seconds. ``error`` is None after a success."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._until = float("-inf")
        self.failures = 0
        self.error: BaseException | None = None

    def failed(self, error: BaseException) -> None:
        self.error = error
        self._until = self._clock() + PAUSES.delay_ms(self.failures) / 1000
        self.failures += 1

    def succeeded(self) -> None:
        self.failures, self.error = 0, None

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._until - self._clock())

    def delay_ms(self, range_: PositionRange) -> int:
        """How long an entry given back stays away: the pause, or longer by its redelivery count."""
        return max(PAUSES.delay_ms(range_.redelivery_count), round(self.seconds_left * 1000))
