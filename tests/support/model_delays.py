"""Delayed delivery in the reference broker: which entries wait, and for whom.

Whether an entry is delayed is decided once, when the broker first sees it: its deliver time has not come then. Each
subscription that knows delays waits for its own delayed entries: those due after it began to, at or behind the place
where it began. All others are entries like any other, which a read meets at their place.
"""

from dataclasses import dataclass, field


@dataclass
class Delays:
    """The deliver times of a topic partition, in milliseconds, and which of its entries are delayed. No entry that is
    seen later comes to lie before what has come due by ``promoted_ms``, also where the clock is set back."""

    deliver_ms: list[int | None] = field(default_factory=list)
    is_delayed: list[bool] = field(default_factory=list)
    promoted_ms: int = -(1 << 62)

    def see(self, now_ms: int) -> None:
        """The broker sees what is new, at this instant; then all that is due by then has come due."""
        after = max(self.promoted_ms, now_ms)
        self.is_delayed += [at is not None and at > after for at in self.deliver_ms[len(self.is_delayed) :]]
        waiting = [at for at, is_delayed in zip(self.deliver_ms, self.is_delayed, strict=True) if is_delayed]
        if any(self.promoted_ms < at <= now_ms for at in waiting):
            self.promoted_ms = now_ms


@dataclass
class DueLane:
    """From when on, and from which position on, a subscription waits for delayed entries by their deliver times. Those
    *apart* left before they were delivered: acknowledged in part, or moved to another time. A read has *passed*
    those it met."""

    since_ms: int
    floor: int
    apart: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)

    def has(self, position: int, delays: Delays) -> bool:
        """Is the entry one that the subscription waits for, or has waited for?"""
        return position >= self.floor and delays.is_delayed[position] and delays.deliver_ms[position] > self.since_ms
