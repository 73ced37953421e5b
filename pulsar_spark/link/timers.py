"""Functions to be called later on a thread."""

import heapq
import itertools
import threading
from collections.abc import Callable


class Timers:
    """The timers of the thread that calls :meth:`run_due`; *condition* wakes it."""

    def __init__(self, condition: threading.Condition, clock: Callable[[], float]):
        self._condition, self._clock = condition, clock
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def add(self, delay: float, function: Callable[[], None]) -> None:
        with self._condition:
            heapq.heappush(self._timers, (self._clock() + delay, next(self._numbers), function))
            self._condition.notify_all()

    def next_due(self) -> float:
        """Infinity without one."""
        return self._timers[0][0] if self._timers else float("inf")

    def run_due(self) -> None:
        while True:
            with self._condition:
                if self.next_due() > self._clock():
                    return
                function = heapq.heappop(self._timers)[2]
            function()
