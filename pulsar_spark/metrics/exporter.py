"""A root's numbers as the text that Prometheus reads, from looks at the whole root."""

import os
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from pulsar_spark.metrics import metrics
from pulsar_spark.metrics.exposition import Metric, Sample, exposed, labels
from pulsar_spark.metrics.metrics import Of, T, TopicNumbers
from pulsar_spark.metrics.settings import DEFAULT_SUBSCRIPTIONS
from pulsar_spark.protocol.delays.instants import from_micros
from pulsar_spark.storage import clock
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.starting import starting
from pulsar_spark.storage.topics.topics import is_root
from pulsar_spark.views.overview import BrokerState, Overview, RootState, RoundState, SubscriptionState
from pulsar_spark.views.overview.values import BLOCKED

FRESH_SECONDS = 0.5
_STEPS = {step: f"{step}_ms" for step in ("number", "requests", "gather", "plan")} | {"write": "write_before_ms"}


class Exporter:
    """Shows the bundles of a root; with a *pid* only those that this process of this machine serves, so that the
    numbers of several brokers add up. At most *most* subscriptions and topic partitions, those with the worst backlog,
    have labels of their own. Safe for several threads; requests within half a second share one look."""

    def __init__(self, root: str | os.PathLike, *, most: int = DEFAULT_SUBSCRIPTIONS, pid: int | None = None):
        self._layout, self._most, self._pid = Layout(root), most, pid
        self._overview = Overview(self._layout, is_read=self._is_shown)
        self._lock = threading.Lock()
        self._text, self._at, self._serves = "", float("-inf"), False
        self._sums, self._counts = defaultdict[tuple[str, str], float](float), Counter[tuple[str, str]]()

    def text(self) -> str:
        """All metrics; nothing as long as the root has no tables."""
        with self._lock:
            if time.monotonic() - self._at >= FRESH_SECONDS:
                self._text, self._at = self._look(), time.monotonic()
            return self._text

    def is_serving(self) -> bool:
        """Has one of the bundles that are shown a broker, and does the process not start any more?"""
        self.text()
        sign = starting(self._layout) if self._serves and self._pid is not None else None
        is_starting = sign is not None and (sign.host, sign.pid) == (socket.gethostname(), self._pid)
        return self._serves and not is_starting

    def _is_shown(self, broker: BrokerState) -> bool:
        of_process = socket.gethostname(), self._pid
        return self._pid is None or (broker.is_serving and (broker.host, broker.pid) == of_process)

    def _look(self) -> str:
        if not is_root(self._layout):
            return ""
        began = time.perf_counter()
        found = self._overview.look(from_micros(clock.now_micros()))
        self._add_rounds(found.rounds)
        self._serves = any(self._is_shown(each) and each.is_serving for each in found.brokers)
        parts = [*self._of_subscriptions(found), *self._of_topics(found), *_of_root(found), *self._of_bundles(found)]
        seconds = time.perf_counter() - began
        return "".join(exposed(*part) for part in [*parts, (metrics.LOOK_SECONDS, [("", seconds)])])

    def _of_subscriptions(self, found: RootState) -> Iterator[tuple[Metric, Iterable[Sample]]]:
        states = found.subscriptions
        of = [
            {**metrics.names(each.topic, each.partition), "subscription": each.subscription}
            for each in states[: self._most]
        ]
        yield from _families(metrics.OF_SUBSCRIPTIONS, states, of, ("namespace", "topic", "subscription"))
        blocked = Counter(each.blocked for each in states if each.blocked)
        counts = [(labels(cluster=metrics.CLUSTER, reason=reason), blocked[reason]) for reason in BLOCKED]
        yield metrics.BLOCKED_SUBSCRIPTIONS, counts

    def _of_topics(self, found: RootState) -> Iterator[tuple[Metric, Iterable[Sample]]]:
        by_topic = defaultdict[tuple[str, int | None], list[SubscriptionState]](list)
        for state in found.subscriptions:
            by_topic[state.topic, state.partition].append(state)
        topics = [
            TopicNumbers(
                topic,
                sum(each.backlog for each in of),
                max((each.backlog_age_seconds or 0.0 for each in of), default=0.0),
                sum(len(each.consumers) for each in of),
                sum(each.rate_out for each in of),
            )
            for topic in found.topics
            for of in [by_topic[topic.topic, topic.partition]]
        ]
        topics.sort(key=lambda each: -each.backlog)
        of = [metrics.names(each.topic.topic, each.topic.partition) for each in topics[: self._most]]
        return _families(metrics.OF_TOPICS, topics, of, ("namespace", "topic"))

    def _add_rounds(self, rounds: Iterable[RoundState]) -> None:
        for each in rounds:
            for step, field in _STEPS.items():
                milliseconds = getattr(each, field)
                if milliseconds is not None:
                    self._sums[each.bundle, step] += milliseconds / 1000
                    self._counts[each.bundle, step] += 1

    def _of_bundles(self, found: RootState) -> Iterator[tuple[Metric, Iterable[Sample]]]:
        of = {each.bundle: labels(cluster=metrics.CLUSTER, bundle=each.bundle) for each in found.brokers}
        yield metrics.SERVES, [(of[each.bundle], each.is_serving) for each in found.brokers]
        shown = [each for each in found.brokers if self._is_shown(each)]
        yield metrics.ROUNDS, [(of[each.bundle], each.round) for each in shown]
        times = [(of[each.bundle], each.round_time.timestamp()) for each in shown if each.round_time]
        yield metrics.LAST_ROUND, times
        bundles, samples = {each.bundle for each in shown}, []
        for (bundle, step), seconds in self._sums.items():
            if bundle in bundles:
                of_step = labels(cluster=metrics.CLUSTER, bundle=bundle, step=step)
                samples += [(f"_sum{of_step}", seconds), (f"_count{of_step}", self._counts[bundle, step])]
        yield metrics.ROUND_SECONDS, samples


def _families(
    of_each: Sequence[Of[T]], states: Sequence[T], names: list[dict[str, str]], folded: tuple[str, ...]
) -> Iterator[tuple[Metric, Iterable[Sample]]]:
    """The metrics of *states*; those that have no *names* are folded into one."""
    own, others = [labels(**each) for each in names], states[len(names) :]
    of_others = labels(cluster=metrics.CLUSTER, **dict.fromkeys(folded, metrics.OTHERS))
    for each in of_each:
        samples = [(of, each.value(state)) for of, state in zip(own, states)]
        if others and each.fold:
            samples.append((of_others, each.fold([each.value(state) for state in others])))
        yield each.metric, samples


def _of_root(found: RootState) -> Iterator[tuple[Metric, Iterable[Sample]]]:
    of, states = labels(cluster=metrics.CLUSTER), found.subscriptions
    yield metrics.TOPICS, [(of, len(found.topics))]
    yield metrics.SUBSCRIPTIONS, [(of, len(states))]
    yield metrics.CONSUMERS, [(of, sum(len(each.consumers) for each in states))]
    yield metrics.RATE_IN, [(of, sum(each.rate_in for each in found.topics))]
    yield metrics.RATE_OUT, [(of, sum(each.rate_out for each in states))]
    yield metrics.BACKLOG, [(of, sum(each.backlog for each in states))]
