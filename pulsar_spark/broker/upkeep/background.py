"""A thread that ends with the broker, and things handled in turn."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

JOIN_SECONDS = 1.0
T = TypeVar("T")


class Background:
    """A thread that runs from :meth:`start` on, and must watch :attr:`stopping`."""

    def __init__(self, name: str):
        self._name = name
        self._thread: threading.Thread | None = None
        self.stopping = threading.Event()

    def start(self, run: Callable[[], None]) -> None:
        """Run *run* on the thread until :attr:`stopping` is set."""
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()

    def close(self, cancel: Callable[[], None] = lambda: None) -> None:
        """Stop, and wait for the thread; *cancel* is called until it ends."""
        self.stopping.set()
        while self._thread is not None and self._thread.is_alive():
            cancel()
            self._thread.join(JOIN_SECONDS)


class Rotation:
    """Picks at most *most* of many things in turn; all if that is None."""

    def __init__(self, most: int | None):
        self._most, self._next = most, 0

    def some(self, things: Sequence[T]) -> Sequence[T]:
        """The next of *things*, which may change between calls.

        >>> rotation = Rotation(2)
        >>> rotation.some("abc"), rotation.some("abc"), rotation.some("abcd")
        (['a', 'b'], ['c', 'a'], ['b', 'c'])
        """
        if self._most is None or len(things) <= self._most:
            return things
        begin = self._next % len(things)
        self._next = (begin + self._most) % len(things)
        return [*things[begin:], *things[:begin]][: self._most]
