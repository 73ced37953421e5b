"""The backlog quota, as a producer meets it: held back or refused while the broker says that the topic's backlog is
exceeded (semantics 3.30).

What the broker says is a row of ``cursor_ledger``. A producer looks at most once a second while nothing is exceeded,
and reads only the rounds since its last look, and of these only the policies; without a broker nothing is ever
exceeded.

A topic that is stopped (see storage.condition) takes nothing more, because nobody would notice that it is never
delivered: the broker says that too, and at the same time the end of the topic's own log is read, because there may be
no broker.
"""

import time
from collections.abc import Callable

import pyarrow.compute as pc

from pulsar_spark.errors import (
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    PulsarSparkError,
    TopicStopped,
)
from pulsar_spark.link import interrupts
from pulsar_spark.protocol.policies import BACKLOG_EXCEEDED, POLICIES, REFUSE, TOPIC_STOPPED
from pulsar_spark.storage.actions import Commit
from pulsar_spark.storage.condition import check_not_stopped
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.tables import read_added
from pulsar_spark.storage.topics import Topic
from pulsar_spark.table_specs import CURSOR_LEDGER

LOOK_SECONDS = 1.0
_POLL_SECONDS = 0.05
_LOOK_BACK = 200
_COLUMNS = ["kind", "topic", "properties", "is_snapshot"]


class BacklogQuota:
    """What the broker said last of one topic; for one producer, safe for threads: two that look at once read the same.
    A policy that was removed is None."""

    def __init__(
        self,
        layout: Layout,
        topic: Topic,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] | None = None,
    ):
        self._name, self._namespace = str(topic.name), topic.name.namespace_name
        self._clock, self._wait = clock, wait
        self._path = layout.broker_table(CURSOR_LEDGER.name)
        self._log = TableLog(self._path)
        self._policies: dict[tuple[str, str], str | None] = {}
        self._seen = -1
        self._look_at = float("-inf")
        self._layout, self._topic, self._stopped = layout, topic, None
        self._followed = max(0, TableLog(topic.path).latest() - _LOOK_BACK)

    def refusal(self, timeout: float, is_closed: Callable[[], bool] = lambda: False) -> PulsarSparkError | None:
        """None when a message may be published. Where producers are held it waits for that *timeout* seconds at most,
        or until the producer is closed."""
        if self._clock() >= self._look_at:
            self._look()
        if self._stopped is not None:
            return TopicStopped(self._stopped)
        if not self._is_exceeded():
            return None
        if self._policy() == REFUSE:
            return ProducerBlockedQuotaExceededException(
                f"the backlog of topic {self._name!r} is above its quota: let its subscriptions catch up, "
                "or raise the quota"
            )
        deadline, wait = self._clock() + timeout, self._wait or interrupts.sleeper()
        while self._is_exceeded() and not is_closed():
            if self._clock() >= deadline:
                return ProducerBlockedQuotaExceededError(
                    f"the backlog of topic {self._name!r} was above its quota for {timeout:g} s: let its subscriptions "
                    "catch up, or raise the quota"
                )
            wait(_POLL_SECONDS)
            self._look()
        return None

    def _is_exceeded(self) -> bool:
        return self._policies.get((self._name, BACKLOG_EXCEEDED)) == "true"

    def _policy(self) -> str:
        name = "backlog_quota_policy"
        return (
            self._policies.get((self._name, name)) or self._policies.get((self._namespace, name)) or str(POLICIES[name])
        )

    def _look(self) -> None:
        self._look_at = self._clock() + LOOK_SECONDS
        if self._seen < 0:
            rounds, seen = self._since_snapshot()
        else:
            rounds, seen = [], self._seen
            for commit in self._log.commits(seen):
                rounds.append(self._read(commit)[0])
                seen = commit.version
        for policies in rounds:
            self._policies = self._policies | policies
        self._seen = seen
        self._stopped = self._what_stops()

    def _what_stops(self) -> str | None:
        """What the topic's log has that cannot be read. What the broker said of it is read again, because it may be
        mended since."""
        is_said = self._policies.get((self._name, TOPIC_STOPPED)) is not None
        try:
            known = read_latest(self._layout).numbered_until(self._topic.topic_id) if is_said else self._followed
            self._followed = check_not_stopped(self._topic, known)
        except TopicStopped as stopped:
            return str(stopped)
        return None

    def _since_snapshot(self) -> tuple[list[dict[tuple[str, str], str | None]], int]:
        """The policies of the latest rounds from the newest snapshot on, and the last version."""
        rounds, latest = [], self._log.latest()
        for version in range(latest, 0, -1):
            policies, is_snapshot = self._read(self._log.commit(version))
            rounds.insert(0, policies)
            if is_snapshot:
                break
        return rounds, latest

    def _read(self, commit: Commit) -> tuple[dict[tuple[str, str], str | None], bool]:
        rows = read_added(self._path, commit, CURSOR_LEDGER.schema, _COLUMNS)
        policies = rows.filter(pc.equal(rows["kind"], "policy")).to_pylist()
        found = {(row["topic"], name): value for row in policies for name, value in row["properties"]}
        return found, bool(pc.any(rows["is_snapshot"]).as_py())
