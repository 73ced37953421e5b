"""What a topic's policies allow a producer: message size, delay, deduplication, and the backlog quota (semantics 3.30).

All producers of the process read the policies together, at most four times a second unless a publish waits. A stopped
topic (see storage.repair.condition) accepts nothing.
"""

import threading
import time
from collections.abc import Callable, Mapping

from pulsar_spark.errors import (
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    PulsarSparkError,
    TopicStopped,
)
from pulsar_spark.link import interrupts
from pulsar_spark.link.shared_by_table import SharedByTable
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.policies.policies import (
    BACKLOG_EXCEEDED,
    CHECK_SECONDS,
    INACTIVITY_TIMEOUT,
    REFUSE,
    TOPIC_STOPPED,
    deduplication_since,
    max_delay_ms,
    policy_number,
    policy_text,
)
from pulsar_spark.storage.cursor_ledger.cursor_ledger import LatestRows, read_latest
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.repair.condition import check_not_stopped
from pulsar_spark.storage.store.away import is_away
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import CURSOR_LEDGER

LOOK_SECONDS = 0.25
_POLL_SECONDS = 0.05
_LOOK_BACK = 200
_COLUMNS = ["kind", "round", "topic", "topic_id", "properties", "is_removed", "is_snapshot"]


class _Policies:
    """A bundle's policies, shared by all producers of the process."""

    def __init__(self, path: AnyPath):
        self._path, self._lock, self._latest = path, threading.Lock(), LatestRows("policy")
        self._known: tuple[int, Mapping[tuple[str, str], str]] = (-1, {})

    def now(self) -> Mapping[tuple[str, str], str]:
        """The current policies; the mapping never changes afterwards."""
        with self._lock:
            self._latest.catch_up(self._path, _COLUMNS)
            if self._known[0] != self._latest.version:
                self._known = self._latest.version, dict(self._latest.policies)
            return self._known[1]


_policies = SharedByTable(_Policies)


def _policies_of(layout: Layout) -> _Policies:
    return _policies.of(layout.broker_table(CURSOR_LEDGER.name))


class BacklogQuota:
    """The latest policies of one topic for one producer. Thread-safe."""

    def __init__(
        self,
        layout: Layout,
        topic: Topic,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] | None = None,
    ):
        self._name = str(topic.name)
        self._clock, self._wait = clock, wait
        self._looking = threading.Lock()
        self._layout, self._topic = layout, topic
        self._stopped: str | None = None
        self._of_bundle = _policies_of(layout)
        self._policies: Mapping[tuple[str, str], str] = {}
        self.max_message_size = self._max_message_size()
        """In bytes."""
        self.max_delay_ms = 0
        """0 is no limit."""
        self._is_exceeded = False
        self._look_at = self.known_until = float("-inf")
        """Until ``known_until`` :meth:`refusal` returns None and reads nothing."""
        self._followed = max(0, TableLog(topic.path).latest() - _LOOK_BACK)

    def refusal(self, timeout: float, is_closed: Callable[[], bool] = lambda: False) -> PulsarSparkError | None:
        """The error that prevents a publish, or None. Waits at most *timeout* seconds, if the policy says so."""
        self.look()
        if self._stopped is not None:
            return TopicStopped(self._stopped)
        if not self._is_exceeded:
            return None
        if policy_text(self._policies, self._name, "backlog_quota_policy") == REFUSE:
            return ProducerBlockedQuotaExceededException(
                f"the backlog of topic {self._name!r} is above its quota: let its subscriptions catch up, "
                f"or raise the quota{self._when()}"
            )
        deadline, wait = self._clock() + timeout, self._wait or interrupts.sleeper()
        while self._is_exceeded and not is_closed():
            if self._clock() >= deadline:
                return ProducerBlockedQuotaExceededError(
                    f"the backlog of topic {self._name!r} was above its quota for {shown_seconds(timeout)}: let its "
                    f"subscriptions catch up, or raise the quota{self._when()}"
                )
            wait(_POLL_SECONDS)
            self._look()
        return None

    def _when(self) -> str:
        seconds = policy_number(CHECK_SECONDS, policy_text(self._policies, self._name, CHECK_SECONDS))
        return f"; a broker checks every {shown_seconds(seconds)} (policy {CHECK_SECONDS})"

    def look(self) -> None:
        """At most four times a second."""
        if self._clock() >= self._look_at:
            self._look()

    def deduplication_since(self) -> int | None:
        """The round from which the topic's messages are deduplicated; None if they are not."""
        return deduplication_since(self._policies, self._name)

    def inactivity_ms(self) -> int:
        """After how long an inactive producer's name is forgotten."""
        return 60_000 * policy_number(INACTIVITY_TIMEOUT, policy_text(self._policies, self._name, INACTIVITY_TIMEOUT))

    def _look(self) -> None:
        with self._looking:
            self._look_at = self._clock() + LOOK_SECONDS
            if is_away(self._topic.path):
                return  # the last known policies hold
            layout = layout_of(self._layout, self._name)
            if layout is not self._layout:
                self._layout, self._of_bundle = layout, _policies_of(layout)
            self._policies = self._of_bundle.now()
            self.max_message_size = self._max_message_size()
            self.max_delay_ms = max_delay_ms(self._policies, self._name)
            self._is_exceeded = self._policies.get((self._name, BACKLOG_EXCEEDED)) == "true"
            self._stopped = self._what_stops()
            is_free = self._stopped is None and not self._is_exceeded
            self.known_until = self._look_at if is_free else float("-inf")

    def _max_message_size(self) -> int:
        return policy_number("max_message_size", policy_text(self._policies, self._name, "max_message_size"))

    def _what_stops(self) -> str | None:
        """What in the topic's log cannot be read, or None; it may be repaired."""
        has_policy = (self._name, TOPIC_STOPPED) in self._policies
        try:
            known = (
                read_latest(self._layout, "topic").numbered_until(self._topic.topic_id)
                if has_policy
                else self._followed
            )
            self._followed = check_not_stopped(self._topic, known)
        except TopicStopped as stopped:
            return str(stopped)
        return None
