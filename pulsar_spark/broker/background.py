"""A thread on which a broker works in the background until it stops."""

import threading
from collections.abc import Callable

JOIN_SECONDS = 1.0


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
