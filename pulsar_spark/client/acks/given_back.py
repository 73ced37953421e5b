"""Entries that a consumer gave back on one topic partition, before they are sent."""

import math
from collections.abc import Iterable
from typing import Any

from pulsar_spark.client.receiving.key_order import UnderWay
from pulsar_spark.protocol.acknowledgement.cursor import UNSEEN
from pulsar_spark.protocol.acknowledgement.positions import ranges_of

SOON_MS = 1000
"""Up to this delay an entry is sent when its delay is over (4.15), so that the round which reads this delivers it
again. A longer delay is sent at once, and the broker keeps it."""
_TICK = 0.01


class GivenBack:
    """The caller holds a lock. Times are in seconds, by one clock."""

    def __init__(self) -> None:
        self._delays: dict[int, tuple[float, int]] = {}
        """By position: when to send it, and its delay from then on."""
        self._unseen: set[int] = set()
        self._under_way: dict[float, UnderWay] = {}
        """By the time of sending."""
        self._sent_time = -math.inf
        """The latest of those that were taken."""

    def __len__(self) -> int:
        return len(self._delays) + len(self._unseen)

    @property
    def next_time(self) -> float:
        """When to send next; infinity without entries."""
        return min(self._under_way, default=math.inf)

    def add(self, positions: Iterable[int], delay_ms: int, now: float) -> UnderWay:
        """Return the requests that will name them."""
        is_soon = 0 < delay_ms <= SOON_MS
        time = math.ceil((now + delay_ms / 1000) / _TICK) * _TICK if is_soon else now // _TICK * _TICK
        self._delays.update(dict.fromkeys(positions, (time, 0 if is_soon else delay_ms)))
        return self._sent_at(time)

    def add_unseen(self, position: int, now: float) -> UnderWay:
        self._unseen.add(position)
        return self._sent_at(now // _TICK * _TICK)

    def _sent_at(self, time: float) -> UnderWay:
        if time <= self._sent_time:  # the tick's first requests are sent already
            time = math.nextafter(self._sent_time, math.inf)
        return self._under_way.setdefault(time, UnderWay(time))

    def clear(self) -> None:
        self._delays.clear()
        self._unseen.clear()
        self._under_way.clear()

    def take(self, now: float, *, is_last: bool = False) -> tuple[list[dict[str, Any]], list[UnderWay]]:
        """Take what is to be sent by now: the columns of the requests, by delay, unseen entries last. The *is_last*
        takes all, with the rest of their delays."""
        by_delay: dict[int, list[int]] = {}
        for position, (time, delay_ms) in list(self._delays.items()):
            if is_last or time <= now:
                del self._delays[position]
                by_delay.setdefault(delay_ms + max(0, math.ceil(1000 * (time - now))), []).append(position)
        unseen, self._unseen = self._unseen - self._delays.keys(), set()
        rows: list[dict[str, Any]] = [
            {"first": first, "last": last, "delay_ms": delay_ms}
            for delay_ms, positions in by_delay.items()
            for first, last in ranges_of(sorted(positions))
        ]
        unseen.difference_update(*by_delay.values())
        rows += [
            {"first": first, "last": last, "delay_ms": 0, "properties": UNSEEN}
            for first, last in ranges_of(sorted(unseen))
        ]
        sent = [time for time in self._under_way if is_last or time <= now]
        self._sent_time = max(sent, default=self._sent_time)
        return rows, [self._under_way.pop(time) for time in sent]
