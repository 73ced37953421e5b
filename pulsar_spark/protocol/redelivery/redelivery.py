"""Redelivery backoff: how long an entry waits before it comes again, by its redelivery count.

Rule: MultiplierRedeliveryBackoff (semantics 4.12, 4.17), in whole milliseconds."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class MultiplierRedeliveryBackoff:
    """Delays that grow by the factor ``multiplier`` from ``min_delay_ms`` up to ``max_delay_ms``.

    ValueError if a delay is below 0, the maximum is below the minimum, or the factor is below 1.

    >>> backoff = MultiplierRedeliveryBackoff(min_delay_ms=1000, max_delay_ms=60_000, multiplier=3)
    >>> [backoff.delay_ms(count) for count in range(-1, 6)]
    [1000, 1000, 3000, 9000, 27000, 60000, 60000]
    """

    min_delay_ms: int = 10_000
    max_delay_ms: int = 600_000
    multiplier: float = 2.0

    def __post_init__(self):
        if not 0 <= self.min_delay_ms <= self.max_delay_ms:
            raise ValueError(
                f"min_delay_ms {self.min_delay_ms!r}, max_delay_ms {self.max_delay_ms!r}: give 0 <= shortest <= longest"
            )
        if not self.multiplier >= 1 or math.isinf(self.multiplier):
            raise ValueError(f"multiplier {self.multiplier!r}: give a number from 1 up")

    def delay_ms(self, redelivery_count: int) -> int:
        """The delay of a message that was redelivered *redelivery_count* times, in milliseconds."""
        if redelivery_count <= 0 or self.min_delay_ms == 0:
            return self.min_delay_ms
        # Logarithms, because a power of a large count exceeds floats.
        if redelivery_count * math.log(self.multiplier) > math.log(self.max_delay_ms / self.min_delay_ms) + 1:
            return self.max_delay_ms
        return min(int(self.min_delay_ms * self.multiplier**redelivery_count), self.max_delay_ms)
