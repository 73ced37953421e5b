"""What a broker's work in the background has in common: a thread that ends with the broker, and things that are looked
at in turn."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

JOIN_SECONDS = 1.0
T = TypeVar("T")


class Background:
    """A thread of its own from :meth:`start` on. What runs there looks at :attr:`stopping`, and waits with it."""

    def __init__(self, name: str):
        self._name, self._thread = name, None
        self.stopping = threading.Event()

    def start(self, run: Callable[[], None]) -> None:
        """Call *run* on the thread; it returns when it finds that it is to stop."""
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()

    def close(self, cancel: Callable[[], None] = lambda: None) -> None:
        """End when what is under way is done, or given up: *cancel* is called until it is."""
        self.stopping.set()
        while self.is_alive:
            cancel()
            self._thread.join(JOIN_SECONDS)

    @property
    def is_alive(self) -> bool:
        """Does it run (still)?"""
        return self._thread is not None and self._thread.is_alive()


class Rotation:
    """Some of many things that cost a call each, at most so many at a time; all where that is None."""

    def __init__(self, most: int | None):
        self._most, self._next = most, 0

    def some(self, things: Sequence[T]) -> Sequence[T]:
        """Those whose turn it is, of *things*, which may be others than the last time.

        >>> rotation = Rotation(2)
        >>> rotation.some("abc"), rotation.some("abc"), rotation.some("abcd")
        ('ab', 'ca', 'bc')
        """
        if self._most is None or len(things) <= self._most:
            return things
        begin = self._next % len(things)
        self._next = (begin + self._most) % len(things)
        behind = things[begin : begin + self._most]
        return behind + things[: self._most - len(behind)]
