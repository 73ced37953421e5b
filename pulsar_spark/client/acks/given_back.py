"""Entries that a consumer gave back on one topic partition, before they are sent."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pulsar_spark.protocol.acknowledgement.cursor import UNSEEN
from pulsar_spark.protocol.acknowledgement.positions import ranges_of


class GivenBack:
    """The caller holds a lock."""

    def __init__(self) -> None:
        self._delays: dict[int, int] = {}
        self._unseen: set[int] = set()
        self._shortest_ms = sys.maxsize
        """The shortest delay, which decides when they are sent."""

    def __bool__(self) -> bool:
        return bool(self._delays or self._unseen)

    def add(self, positions: Iterable[int], delay_ms: int) -> bool:
        """Return whether they must be sent sooner than those before."""
        is_sooner = delay_ms < self._shortest_ms
        self._shortest_ms = min(self._shortest_ms, delay_ms)
        self._delays.update(dict.fromkeys(positions, delay_ms))
        return is_sooner

    def add_unseen(self, position: int) -> bool:
        """Return whether it is the first."""
        is_first = not self._unseen
        self._unseen.add(position)
        return is_first

    def clear(self) -> None:
        self._delays.clear()
        self._unseen.clear()

    def requests(self) -> Iterator[dict[str, Any]]:
        """The columns of the requests, by delay; unseen entries last."""
        by_delay: dict[int, list[int]] = {}
        for position, delay_ms in self._delays.items():
            by_delay.setdefault(delay_ms, []).append(position)
        for delay_ms, positions in by_delay.items():
            for first, last in ranges_of(sorted(positions)):
                yield {"first": first, "last": last, "delay_ms": delay_ms}
        for first, last in ranges_of(sorted(self._unseen - self._delays.keys())):
            yield {"first": first, "last": last, "delay_ms": 0, "properties": UNSEEN}
