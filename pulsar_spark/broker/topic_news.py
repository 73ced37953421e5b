"""Which topics' logs a look asks: those that were announced, those that are known to have moved, and some of all in
turn.

A look costs the same whatever the number of topics (design 9, 11). Who publishes with this package announces it (see
storage.announcements). What nobody announced is found by the turn: of :data:`IN_TURN` topics or fewer each has one at
every look, of ten thousand every two or three seconds, also while one round follows the other.
"""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pulsar_spark.storage.announcements import announcement_of, pass_on, take_announced
from pulsar_spark.storage.layout import Layout

if TYPE_CHECKING:
    from pulsar_spark.broker.topics import TopicState

IN_TURN, A_SECOND = 32, 4000
"""Logs that are asked though nobody said that they moved: so many at each look, and at one behind a round so many for
each second that went by. They cost a fiftieth of a core."""


A_SECOND_OF_A_STORE = 4
"""The same in an object store, where each is a call, which costs its price and is not to be quicker for many topics."""


class TopicNews:
    """Of the *topics* of a bundle, by name. For one thread at a time."""

    def __init__(self, layout: Layout, topics: Mapping[str, "TopicState"]):
        self._layout, self._topics = layout, topics
        self._asked: dict[str, None] = {}
        self._by_announcement: dict[str, str] = {}
        self._turn: list[str] = []
        self._looked_at = time.monotonic()
        self._owed = 0.0

    def add(self, name: str) -> None:
        """A topic that was not known before: its log is asked at the next look."""
        self._by_announcement[announcement_of(self._topics[name].topic.path)] = name
        self.ask([name])

    def drop(self, state: "TopicState") -> None:
        """It is gone."""
        self._by_announcement.pop(announcement_of(state.topic.path), None)

    def ask(self, names: Iterable[str] | None = None) -> None:
        """Let the next look ask the logs of these, or of all."""
        self._asked.update(dict.fromkeys(self._topics if names is None else names))

    def moved(self) -> list[tuple[str, "TopicState"]]:
        """The topics, of those it is time to ask, whose logs hold commits that are not numbered yet. They are asked
        again at each look until they are."""
        announced = take_announced(self._layout)
        self.ask(self._by_announcement[name] for name in announced if name in self._by_announcement)
        pass_on(self._layout, (name for name in announced if name not in self._by_announcement))
        self._ask_in_turn()
        states = ((name, self._topics.get(name)) for name in self._asked)
        moved = [(name, state) for name, state in states if state is not None and state.has_news]
        self._asked = dict.fromkeys(name for name, _ in moved)
        return moved

    def _ask_in_turn(self) -> None:
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
        self.ask(self._turn[-count:])
        del self._turn[-count:]
