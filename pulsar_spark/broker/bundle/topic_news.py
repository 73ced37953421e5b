"""Choose the topics whose logs the broker reads when it looks for news: announced ones, those with commits left to
number, and :data:`IN_TURN` others in turn. So a look costs the same for any number of topics."""

import time
from collections.abc import Iterable, Mapping

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.announcements import announcement_of, pass_on, take_announced

IN_TURN, A_SECOND = 32, 4000
"""Logs read in turn without an announcement: so many at each look, or so many for each second since the last look if
that is more."""


A_SECOND_OF_A_STORE = 4
"""Logs read in turn per second in an object store, where each one costs a call."""


class TopicNews:
    """News about the *topics* of a bundle. For one thread at a time."""

    def __init__(self, layout: Layout, topics: Mapping[str, TopicState]):
        self._layout, self._topics = layout, topics
        self._to_read: dict[str, None] = {}
        self._by_announcement: dict[str, str] = {}
        self._turn: list[str] = []
        self._looked_at = time.monotonic()
        self._owed = 0.0

    def add(self, name: str) -> None:
        self._by_announcement[announcement_of(self._topics[name].topic.path)] = name
        self.enqueue([name])

    def drop(self, state: TopicState) -> None:
        self._by_announcement.pop(announcement_of(state.topic.path), None)

    def enqueue(self, names: Iterable[str] | None = None) -> None:
        """Let the next look read these logs, or all."""
        self._to_read.update(dict.fromkeys(self._topics if names is None else names))

    def moved(self) -> list[tuple[str, TopicState]]:
        """Topics with commits to number, among those this look reads; read again until numbered."""
        announced = take_announced(self._layout)
        self.enqueue(self._by_announcement[name] for name in announced if name in self._by_announcement)
        pass_on(self._layout, (name for name in announced if name not in self._by_announcement))
        self._enqueue_in_turn()
        states = ((name, self._topics.get(name)) for name in self._to_read)
        moved = [(name, state) for name, state in states if state is not None and state.has_news]
        self._to_read = dict.fromkeys(name for name, _ in moved)
        return moved

    def _enqueue_in_turn(self) -> None:
        now = time.monotonic()
        seconds, self._looked_at = now - self._looked_at, now
        count = max(IN_TURN, int(A_SECOND * seconds))
        if not self._layout.store.is_local:
            self._owed = min(self._owed + A_SECOND_OF_A_STORE * seconds, len(self._topics))
            count = int(self._owed)
            self._owed -= count
            if not count:
                return
        if not self._turn:
            self._turn = list(self._topics)
        self.enqueue(self._turn[-count:])
        del self._turn[-count:]
