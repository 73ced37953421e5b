"""A workload whose outcome is known to the last message, whatever happens to its broker meanwhile.

One producer sends numbers, single and in batches. On ``work`` (Shared, two consumers) every seventh number is poison:
it is negatively acknowledged whenever it comes; another seventh is put off whenever it comes, and everything else is
acknowledged; on ``order`` (Failover) everything is acknowledged cumulatively. The consumers stay connected throughout,
so the account is exact: each number comes once, one that is given back or put off :data:`REDELIVERIES` times more, with
counts that go up by one, and ends as one dead letter.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.protocol.redelivery.letters import (
    ORIGIN_MESSAGE_ID,
    dead_letter_topic,
    reconsume_times,
    retry_letter_topic,
)
from pulsar_spark.storage.layout import Layout
from pulsar_spark.views.overview import Overview

TOPIC = "persistent://public/default/numbers"
REDELIVERIES = 2
EVERY = 7
POISON, PUT_OFF = 0, 3
"""What is left of a number, divided by :data:`EVERY`, that is given back or put off."""

BATCH = 4
LEASE_SECONDS = 600
"""Longer than any broker is away, so that nothing is given back because its consumer could not be heard."""


class Account(NamedTuple):
    """Numbers that never came, deliveries nobody expected, and what differs of dead letters and cursors; all empty
    where nothing went wrong."""

    lost: list
    unexpected: list
    letters: list
    left: dict


class Workload:
    """A context with a client of its own; made on a root that some broker serves, now and then."""

    def __init__(self, root, patience_seconds: int):
        self._root = root
        self._client = pulsar.Client(
            f"delta:{root}", operation_timeout_seconds=patience_seconds, lease_seconds=LEASE_SECONDS
        )
        self._sent = 0
        self._received: dict[str, dict[int, list[int]]] = {"work": defaultdict(list), "order": defaultdict(list)}
        self._order: list[int] = []

    def __enter__(self) -> "Workload":
        def subscribe(name: str, kind: pulsar.ConsumerType, **options):
            return self._client.subscribe(
                TOPIC, name, consumer_type=kind, initial_position=pulsar.InitialPosition.Earliest, **options
            )

        policy = pulsar.ConsumerDeadLetterPolicy(REDELIVERIES, initial_subscription_name="read")
        self._workers = [
            subscribe(
                "work",
                pulsar.ConsumerType.Shared,
                receiver_queue_size=20,
                dead_letter_policy=policy,
                retry_enable=True,
                unacked_messages_timeout_ms=0,
                negative_ack_redelivery_delay_ms=300,
            )
            for _ in range(2)
        ]
        self._orderly = subscribe("order", pulsar.ConsumerType.Failover, receiver_queue_size=100)
        self._singles = self._client.create_producer(TOPIC)
        self._batches = self._client.create_producer(
            TOPIC, batching_enabled=True, batching_max_messages=BATCH, batching_max_publish_delay_ms=10_000
        )
        return self

    def __exit__(self, *_):
        self._client.close()

    def step(self) -> None:
        """Send some numbers, and handle what has come."""
        for _ in range(2):
            self._singles.send_async(self._next(), None)
        self._singles.flush()
        for _ in range(BATCH):
            self._batches.send_async(self._next(), None)
        self._batches.flush()
        self._handle(20)

    def settle(self) -> None:
        """Handle what still comes, until everything expected is there and nothing came for a while."""
        quiet = 0
        while quiet < 3:
            quiet = 0 if self._handle(300) or self._missing() else quiet + 1

    def account(self) -> Account:
        """What went wrong; call it when settled."""
        letters = sorted(self._letters())
        expected = sorted(number for number in range(self._sent) if _dies(number))
        admin = Admin(f"delta:{self._root}")
        left = {
            (topic, name): (sub["msgBacklog"], sub["unackedMessages"])
            for topic in (TOPIC, retry_letter_topic(TOPIC, "work"))
            for name, sub in admin.stats(topic)["subscriptions"].items()
            if sub["msgBacklog"] or sub["unackedMessages"]
        }
        left |= self._miscounted()
        return Account(self._missing(), self._unexpected(), [] if letters == expected else [letters, expected], left)

    def _miscounted(self) -> dict:
        """The subscriptions whose counters of acknowledged and dead messages are not what happened."""
        retry = retry_letter_topic(TOPIC, "work")
        poison, put_off = (sum(number % EVERY == each for number in range(self._sent)) for each in (POISON, PUT_OFF))
        dead = {(TOPIC, "work"): poison, (TOPIC, "order"): 0, (retry, "work"): put_off}
        root, published = Overview(Layout(self._root)).look(), Counter[str]()
        for topic in root.topics:
            published[topic.topic] += topic.messages
        return {
            (state.topic, state.subscription, "counted"): (state.acknowledged, state.dead)
            for state in root.totals
            if (state.topic, state.subscription) in dead
            and (state.acknowledged + state.dead, state.dead)
            != (published[state.topic], dead[state.topic, state.subscription])
        }

    def _next(self) -> bytes:
        self._sent += 1
        return str(self._sent - 1).encode()

    def _handle(self, timeout_ms: int) -> int:
        """Everything that is there, waiting so long for the first; how much it was."""
        count = 0
        for worker in self._workers:
            while message := received(worker, timeout_ms):
                number = int(message.data())
                self._received["work"][number].append(
                    message.redelivery_count() + reconsume_times(message.properties())
                )
                handle = {POISON: worker.negative_acknowledge, PUT_OFF: worker.reconsume_later}.get(
                    number % EVERY, worker.acknowledge
                )
                handle(message)
                count, timeout_ms = count + 1, 1
        last = None
        while message := received(self._orderly, timeout_ms):
            self._received["order"][int(message.data())].append(message.redelivery_count())
            self._order.append(int(message.data()))
            last, count, timeout_ms = message, count + 1, 1
        if last is not None:
            self._orderly.acknowledge_cumulative(last)
        return count

    def _expected(self) -> dict[tuple[str, int], list[int]]:
        counts = list(range(REDELIVERIES + 1))
        return {("work", number): counts if _dies(number) else [0] for number in range(self._sent)} | {
            ("order", number): [0] for number in range(self._sent)
        }

    def _missing(self) -> list:
        return [
            place for place, counts in self._expected().items() if set(counts) - set(self._received[place[0]][place[1]])
        ]

    def _unexpected(self) -> list:
        expected = self._expected()
        found = [
            (name, number, counts)
            for name, numbers in self._received.items()
            for number, counts in numbers.items()
            if counts and counts != expected.get((name, number))
        ]
        return found + ([] if self._order == sorted(self._order) else ["order"])

    def _letters(self) -> list[int]:
        reader = self._client.create_reader(dead_letter_topic(TOPIC, "work"), pulsar.MessageId.earliest)
        found = {}
        while reader.has_message_available():
            message = reader.read_next(60_000)
            found.setdefault(message.properties()[ORIGIN_MESSAGE_ID], []).append(int(message.data()))
        return [number for numbers in found.values() for number in numbers]


def _dies(number: int) -> bool:
    return number % EVERY in (POISON, PUT_OFF)


def received(consumer, timeout_ms: int):
    try:
        return consumer.receive(timeout_millis=timeout_ms)
    except pulsar.Timeout:
        return None
