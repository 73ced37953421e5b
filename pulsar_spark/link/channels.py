"""One client's connections to the brokers of its topics: a channel to each bundle.

A topic's bundle is looked up on connecting and after :class:`ServiceUnitNotReady`.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from pulsar_spark.errors import PulsarSparkError, ServiceUnitNotReady
from pulsar_spark.link import interrupts
from pulsar_spark.link.channel import Channel, Done
from pulsar_spark.link.inbox import Reply, Subscriber
from pulsar_spark.link.requests import RequestMaker
from pulsar_spark.protocol.subscriptions.membership import DEFAULT_LEASE_MS
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import LOOK_AGAIN_SECONDS, layout_of, look_again


class Channels:
    """Has the methods of :class:`Channel`. Rows go to the bundle of their topic, in one commit each."""

    def __init__(
        self, layout: Layout, client_id: str, *, lease_ms: int = DEFAULT_LEASE_MS, logger: logging.Logger | None = None
    ):
        self._layout, self.lease_ms = layout, lease_ms
        self._maker = RequestMaker(client_id)
        self._open = partial(Channel, client_id=client_id, lease_ms=lease_ms, logger=logger, maker=self._maker)
        self._lock, self._eager = threading.Lock(), 0
        self._channels: dict[str, Channel] = {}
        self._first = self._to(layout_of(layout, ""))
        self.logger = self._first.logger

    def follow(self, topic: str) -> Channel:
        """The channel of a topic whose bundle may have changed."""
        look_again(self._layout)
        return self.of(topic)

    def of(self, topic: str) -> Channel:
        """The channel to a topic's present bundle; the name is full, without a partition."""
        return self._to(layout_of(self._layout, topic))

    def _to(self, layout: Layout) -> Channel:
        found = self._channels.get(layout.bundle)
        if found is None:
            with self._lock:
                found = self._channels.get(layout.bundle)
                if found is None:
                    found = self._open(layout)
                    if self._eager:
                        found.hurry(self._eager)
                    self._channels = {**self._channels, layout.bundle: found}
        return found

    def submit(
        self, rows: list[dict], *, is_urgent: bool = False, committed: Callable[[int], None] | None = None
    ) -> None:
        """Send *rows*; *committed* gets the version of the last commit, -1 if any connection failed before."""
        groups = self._by_channel(dict(enumerate(rows)))
        countdown = committed and _Countdown(len(groups), committed)
        for channel, group in groups:
            channel.submit([*group.values()], is_urgent=is_urgent, committed=countdown)

    def ask(self, rows: list[dict], timeout: float) -> list[Reply]:
        """The replies to *rows*, in order. Requests for topics that moved are repeated."""
        deadline, sleep = time.monotonic() + timeout, interrupts.sleeper()
        pending, replies = dict(enumerate(rows)), dict[int, Reply]()
        while True:
            for channel, group in self._by_channel(pending):
                found = channel.ask([*group.values()], max(0.0, deadline - time.monotonic()))
                replies.update(zip(group, found, strict=True))
            pending = self._moved(pending, replies)
            if not pending or time.monotonic() + LOOK_AGAIN_SECONDS > deadline:
                return _in_order(replies)
            look_again(self._layout)
            sleep(LOOK_AGAIN_SECONDS)

    def ask_then(self, rows: list[dict], timeout: float, done: Done) -> None:
        self._ask_then(dict(enumerate(rows)), time.monotonic() + timeout, {}, done)

    def _ask_then(self, pending: dict[int, dict], deadline: float, replies: dict[int, Reply], done: Done) -> None:
        groups = self._by_channel(pending)
        left = len(groups)

        def answered(group: dict[int, dict], found: list[Reply], error: PulsarSparkError | None) -> None:
            nonlocal left
            if error is not None:
                if left > 0:
                    left = -1
                    done([], error)
                return
            replies.update(zip(group, found, strict=True))
            with self._lock:
                left -= 1
                is_last = left == 0
            if is_last:
                moved = self._moved(pending, replies)
                if moved and time.monotonic() + LOOK_AGAIN_SECONDS < deadline:
                    look_again(self._layout)
                    self.call_later(LOOK_AGAIN_SECONDS, lambda: self._ask_then(moved, deadline, replies, done))
                else:
                    done(_in_order(replies), None)

        for channel, group in groups:
            left_seconds = max(0.0, deadline - time.monotonic())
            channel.ask_then([*group.values()], left_seconds, partial(answered, group))

    def post(self, rows: list[dict], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for channel, group in self._by_channel(dict(enumerate(rows))):
            channel.post([*group.values()], max(0.0, deadline - time.monotonic()))

    def attach(self, consumer_id: str, topic: str, partition: int, subscriber: Subscriber) -> None:
        self.of(topic).attach(consumer_id, topic, partition, subscriber)

    def detach(self, consumer_id: str, topic: str, partition: int) -> None:
        for channel in self._channels.values():
            channel.detach(consumer_id, topic, partition)

    def call_later(self, delay: float, function: Callable[[], None]) -> None:
        """Call *function* on the first channel's thread after *delay* seconds."""
        self._first.call_later(delay, function)

    def hurry(self, change: int) -> None:
        with self._lock:
            self._eager += change
            channels = self._channels.values()
        for channel in channels:
            channel.hurry(change)

    @property
    def failure(self) -> PulsarSparkError | None:
        """Why requests cannot be sent to some bundle; None while all are reachable."""
        return next(filter(None, (channel.failure for channel in self._channels.values())), None)

    def has_broker(self) -> bool:
        return all(channel.has_broker() for channel in self._channels.values())

    def stop(self, timeout: float) -> None:
        """End all channels; waiting requests are sent first."""
        for channel in self._channels.values():
            channel.stop(timeout)

    def _by_channel(self, rows: dict[int, dict]) -> list[tuple[Channel, dict[int, dict]]]:
        """Rows by their place among all, for each channel; at least one group."""
        groups: dict[Channel, dict[int, dict]] = {}
        by_topic: dict[str | None, dict[int, dict]] = {}
        for place, row in rows.items():
            topic = row.get("topic")
            group = by_topic.get(topic)
            if group is None:
                channel = self._first if topic is None else self.of(topic)
                group = by_topic[topic] = groups.setdefault(channel, {})
            group[place] = row
        return list(groups.items()) or [(self._first, {})]

    def _moved(self, rows: dict[int, dict], replies: dict[int, Reply]) -> dict[int, dict]:
        """With new ids."""
        return {
            place: row | {"request_id": self._maker.make(row["kind"])["request_id"]}
            for place, row in rows.items()
            if isinstance(replies[place].error, ServiceUnitNotReady)
        }


class _Countdown:
    """Calls back once, with the version of the last commit, -1 if one failed."""

    def __init__(self, count: int, done: Callable[[int], None]):
        self._left, self._done, self._lock, self._is_lost = count, done, threading.Lock(), False

    def __call__(self, version: int) -> None:
        with self._lock:
            self._left -= 1
            self._is_lost |= version < 0
            is_last = self._left == 0
        if is_last:
            self._done(-1 if self._is_lost else version)


def _in_order(replies: dict[int, Reply]) -> list[Reply]:
    return [replies[place] for place in sorted(replies)]
