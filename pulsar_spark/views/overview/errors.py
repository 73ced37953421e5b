"""Why topics and subscriptions are not served, and letters that wait, by the latest rows."""

from collections import Counter
from typing import NamedTuple

from pulsar_spark.protocol.policies.policies import TOPIC_STOPPED
from pulsar_spark.protocol.redelivery.letters import letters_in
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.cursor_ledger.set_aside import SUBSCRIPTION, TOPIC
from pulsar_spark.views.overview.values import SET_ASIDE, STOPPED


class Error(NamedTuple):
    """Why a topic or subscription is not served: ``stopped`` or ``set_aside``, and what happened."""

    kind: str
    text: str


class Errors:
    """What is set aside or stopped, as the *latest* rows say."""

    def __init__(self, latest: LatestRows):
        self._policies = latest.policies
        self._set_aside: dict[tuple, Error] = {}
        """By a topic's id, or by the key of a cursor."""
        for entry in latest.set_aside.values():
            if entry.status in (TOPIC, SUBSCRIPTION):
                key = (entry.topic_id, entry.partition, entry.subscription)[: 1 if entry.status == TOPIC else 3]
                self._set_aside[key] = Error(SET_ASIDE, f"{entry.error}: {entry.text}")

    def __bool__(self) -> bool:
        return bool(self._set_aside) or any(name == TOPIC_STOPPED for _, name in self._policies)

    def set_aside(self, *key: object) -> Error | None:
        """Why a topic is set aside, by its id, or a cursor, by its key."""
        return self._set_aside.get(key)

    def of_topic(self, name: str, topic_id: str) -> Error | None:
        stopped = self._policies.get((name, TOPIC_STOPPED))
        return Error(STOPPED, stopped) if stopped else self.set_aside(topic_id)

    def of_cursor(self, topic: str, key: CursorKey) -> Error | None:
        """That of its topic, or its own."""
        return self.of_topic(topic, key.topic_id) or self.set_aside(*key)


def count_waiting_letters(latest: LatestRows) -> Counter[CursorKey]:
    """Messages whose letters could not be written yet."""
    found = Counter[CursorKey]()
    for row in latest.waiting_letters.values():
        found[CursorKey(row["topic_id"], row["partition"], row["subscription"])] += letters_in(row)
    return found
