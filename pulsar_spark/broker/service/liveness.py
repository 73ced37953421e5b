"""Which clients gave a sign of life, and which are gone before their lease ends (PersistentSubscription.addConsumer).

A client is gone if its process's lock is free; one without a lock, or on another machine, has only its lease. Clients
that went are remembered for a while.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.presence import (
    all_signs,
    is_gone,
    is_watched,
    last_sign,
    present_clients,
    remove_gone,
    remove_old,
)

LOOK_SECONDS = 0.05
MOST_LOOKS = 50
STORE_LOOK_SECONDS = 2.0
"""The time between looks in an object store, where one call lists all signs, and clients are gone only when their lease
ends."""
TIDY_SECONDS = 60.0
REMEMBERED_SECONDS = 30.0


class Liveness:
    """The clients of one bundle; *clock* is in seconds."""

    def __init__(self, layout: Layout, clock: Callable[[], float] = time.monotonic):
        self._layout, self._clock = layout, clock
        self._next_look = self._next_tidying = float("-inf")
        self._queue: deque[str] = deque()
        self._is_watched: dict[str, bool] = {}
        self._signs: dict[str, object] = {}
        self._heard: list[str] = []
        self._went: OrderedDict[str, float] = OrderedDict()
        self._left: set[str] = set()
        """Clients that went and whose files are there until a round has let them go."""

    def gone(self, connected: Collection[str]) -> list[str]:
        """The *connected* clients known to be gone; looks at some if it is time."""
        if self._clock() >= self._next_look:
            self._look(connected)
        for client_id in [client_id for client_id in self._left if client_id not in connected]:
            remove_gone(self._layout, client_id)
            self._left.remove(client_id)
        return [client_id for client_id in connected if client_id in self._went] if self._went else []

    def take_heard(self) -> list[str]:
        """Remove and return clients with a sign of life since the last call."""
        heard, self._heard = self._heard, []
        return heard

    def has_sign(self, client_id: str) -> bool:
        """Did the client give a sign of life since the last look? Not at the first."""
        return self._is_new(client_id, last_sign(self._layout, client_id))

    def _is_new(self, client_id: str, sign: object) -> bool:
        before = self._signs.get(client_id)
        if sign is not None:
            self._signs[client_id] = sign
        return None not in (before, sign) and before != sign

    def look_at(self, clients: Iterable[str]) -> list[str]:
        """Which of the first *clients* are gone, checked now before another is refused."""
        return [client_id for client_id in list(dict.fromkeys(clients))[:MOST_LOOKS] if self._is_gone(client_id)]

    def _is_gone(self, client_id: str) -> bool:
        if client_id not in self._went and is_gone(self._layout, client_id):
            self._went[client_id] = self._clock()
            self._left.add(client_id)
        return client_id in self._went

    def _look(self, connected: Collection[str]) -> None:
        if not self._layout.store.is_local:
            self._look_at_all(connected)
            return
        self._next_look = self._clock() + LOOK_SECONDS
        if not self._queue:
            self._is_watched = {
                client_id: self._is_watched[client_id] for client_id in connected if client_id in self._is_watched
            }
            self._signs = {client_id: self._signs[client_id] for client_id in connected if client_id in self._signs}
            self._queue.extend(connected)
            self._tidy(connected)
        for _ in range(min(MOST_LOOKS, len(self._queue))):
            client_id = self._queue.popleft()
            if self.has_sign(client_id):
                self._heard.append(client_id)
            if self._is_watched.get(client_id, True) and not self._is_gone(client_id):
                self._is_watched.setdefault(client_id, is_watched(self._layout, client_id))
        while self._went and next(iter(self._went.values())) <= self._clock() - REMEMBERED_SECONDS:
            self._went.popitem(last=False)

    def _look_at_all(self, connected: Collection[str]) -> None:
        self._next_look = self._clock() + STORE_LOOK_SECONDS
        is_tidying = self._clock() >= self._next_tidying
        if not connected and not is_tidying:
            return
        found = all_signs(self._layout)
        self._heard += [client_id for client_id in connected if self._is_new(client_id, found.get(client_id))]
        self._signs = {client_id: self._signs[client_id] for client_id in connected if client_id in self._signs}
        if is_tidying:
            self._next_tidying = self._clock() + TIDY_SECONDS
            for client_id in [client_id for client_id in found if client_id not in connected][:MOST_LOOKS]:
                remove_old(self._layout, client_id)

    def _tidy(self, connected: Collection[str]) -> None:
        """From time to time look at all other clients' files, too."""
        if self._clock() >= self._next_tidying:
            self._next_tidying = self._clock() + TIDY_SECONDS
            others = [client_id for client_id in present_clients(self._layout) if client_id not in connected]
            for client_id in others:
                remove_old(self._layout, client_id)
            self._queue.extend(others)
