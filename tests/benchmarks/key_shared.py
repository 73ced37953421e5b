"""Key_Shared: rounds that hand out and take back very many messages of very many keys, what their state comes to, and
the Python client.

Rounds run in this process, without consumers' own work: one hands out all there is, to consumers with as many permits
each as that takes, one takes all of it back by what was delivered. Keys lie at random. Beside it the same on a Shared
subscription. DataFrame consumers are measured by keyed_backlog.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

import pulsar_spark as pulsar
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, Range
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench, in_turns, seconds
from tests.benchmarks.figures import COUNT, PER_SECOND, SECONDS, Budget, Figure
from tests.benchmarks.round_rig import PERMITS, RoundRig
from tests.support.requests import On

FAMILY = "key_shared"
CONSUMERS = (1, 4, 32)
STATE_ROWS = Budget(10_000)
CLIENT_RATE = Budget(60_000, is_most=False)
KEYS = 1000
QUEUE_SIZES, TURNS = (1000, 50_000), 3
LEASE_MS = 86_400_000


def measure(bench: Bench) -> Iterator[Figure]:
    messages = bench.few(10**6, 10**7)
    for consumers in CONSUMERS:
        yield from _rounds(bench, messages, consumers)
    yield from _moves(bench, bench.few(10**6, 4 * 10**6))
    yield from _client(bench, bench.few(100_000, 10**6))


def _rounds(bench: Bench, messages: int, consumers: int) -> Iterator[Figure]:
    bench.say(f"{messages:,} messages to {consumers} Key_Shared consumers")
    keyed = _Subscription(bench, f"keyed-{consumers}", "KeyShared", consumers)
    shared = _Subscription(bench, f"shared-{consumers}", "Shared", consumers)
    keyed.publish(messages)
    shared.publish(messages)
    ours, others = in_turns(1, lambda: keyed.round_trip(messages), lambda: shared.round_trip(messages))
    what = f"hand out and take back {messages:,} messages, {consumers} consumers"
    yield Figure(FAMILY, what, PER_SECOND, ours, "Shared", others)
    what = f"rows of state with {messages:,} in flight, {consumers} consumers"
    yield Figure(FAMILY, what, COUNT, keyed.rows, budget=STATE_ROWS)


def _moves(bench: Bench, messages: int) -> Iterator[Figure]:
    """A consumer joins and one leaves with half of the messages in flight; then each round acknowledges a quarter of
    what was, and hands out as much, until no entry is with another consumer than the owner of its hash."""
    bench.say("a consumer joins and another leaves under load")
    keyed = _Subscription(bench, "moves", "KeyShared", 4)
    keyed.publish(messages)
    share = messages // 8
    keyed.hand_out(share)
    rig, on = keyed.rig, keyed.on
    rounds = [
        seconds(lambda: rig.ask([on.subscribe("new", "KeyShared", lease_ms=LEASE_MS), on.flow("new", share)])),
        seconds(lambda: rig.ask([on.close("c0")])),
    ]
    rows, until = [keyed.changed_ranges()], 0
    while keyed.is_moving():
        until += share
        if until > messages:
            raise AssertionError("all was acknowledged, and entries are with others than their owners")
        asked = [*keyed.acknowledgements(until), *keyed.flows(share // 4)]
        rounds.append(seconds(lambda: rig.ask(asked)))
        rows.append(keyed.changed_ranges())
    yield Figure(FAMILY, f"a round while a consumer joins and one leaves, {messages // 2:,} in flight", SECONDS, rounds)
    yield Figure(
        FAMILY, "rounds until every hash is with its owner alone, a quarter done a round", COUNT, [len(rounds)]
    )
    yield Figure(FAMILY, "rows of state after each of these rounds", COUNT, rows, budget=STATE_ROWS, share=1.0)


class _Subscription:
    """A topic of its own, its consumers and what they hold."""

    def __init__(self, bench: Bench, name: str, kind: str, consumers: int):
        self.rig = RoundRig(bench.planner, bench.new_folder(name))
        self.topic = self.rig.create_topic("t")
        self.on = On(self.topic)
        self.consumers = [f"c{number}" for number in range(consumers)]
        self.rows: list[float] = []
        self.rig.ask([self.on.subscribe(consumer, kind, lease_ms=LEASE_MS) for consumer in self.consumers])

    def publish(self, messages: int) -> None:
        hashes = np.random.default_rng(7).integers(0, 10**6, messages) * 2147 % (1 << 31)
        for first in range(0, messages, 10**6):
            self.rig.publish_keys(self.topic, hashes[first : first + 10**6].astype(np.int32))
        self.rig.ask([])

    def flows(self, permits: int) -> list[dict]:
        return [self.on.flow(consumer, permits) for consumer in self._cursor().consumers]

    def hand_out(self, permits: int) -> None:
        self.rig.ask(self.flows(permits))

    def round_trip(self, messages: int) -> float:
        """Messages a second; everything is unread again afterwards."""
        self.rig.ask([self.on.seek(0)])
        elapsed = seconds(lambda: self.hand_out(PERMITS))
        self.rows.append(self.changed_ranges())
        acknowledgements = self.acknowledgements()
        elapsed += seconds(lambda: self.rig.ask(acknowledgements))
        if self._cursor().mark_delete != messages - 1:
            raise AssertionError(f"mark-delete is {self._cursor().mark_delete} of {messages} messages")
        return messages / elapsed

    def acknowledgements(self, until: float = math.inf) -> list[dict]:
        """One request for each range that is out, by its consumer, as far as it lies before position *until*."""
        return [
            self.on.ack(
                range_.first,
                min(range_.last, until - 1),
                consumer=range_.consumer_id,
                delivery_round=range_.delivery_round,
            )
            for range_ in self._states()
            if range_.status == PENDING and range_.first < until
        ]

    def is_moving(self) -> bool:
        """Is any entry with another consumer than the owner of its hash?"""
        cursor = self._cursor()
        return cursor.at_others is not None and len(cursor.at_others[1]) > 0

    def changed_ranges(self) -> int:
        return len(self._states())

    def _states(self) -> list:
        """The states of entries, each as a range from the first to the last of them."""
        entries, found = self._cursor().entries, []
        for code, state in entries.codes.known():
            positions = entries.where([code], 0, entries.end - 1) if state.status == PENDING else ()
            if len(positions):
                found.append(Range(int(positions[0]), int(positions[-1]), *state))
        return found

    def _cursor(self):
        (cursor,) = self.rig.rounds.bundle.cursors.values()
        return cursor


def _client(bench: Bench, messages: int) -> Iterator[Figure]:
    """What a consumer's queue holds is what a round can hand it; one of the default size grows, the other is long. Both
    take turns, and the first is left out: broker and consumers are warm."""
    root = bench.new_folder("key_shared_client") / "root"
    with BrokerProcess(root, bench.folder / "key_shared_client.log"):
        client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=120)
        producer = client.create_producer(
            "t",
            batching_enabled=True,
            batching_type=pulsar.BatchingType.KeyBased,
            max_pending_messages=50_000,
            block_if_queue_full=True,
        )
        consumers = [
            client.subscribe("t", f"s-{size}", pulsar.ConsumerType.KeyShared, receiver_queue_size=size)
            for size in QUEUE_SIZES
        ]
        rates: list[list[float]] = []
        for turn in range(TURNS):
            bench.say(f"the client receives {messages:,} messages of {KEYS:,} keys, turn {turn + 1} of {TURNS}")
            for number in range(messages):
                producer.send_async(b"x" * PAYLOAD_BYTES, None, partition_key=f"key-{number % KEYS}")
            producer.flush()
            rates.append([messages / seconds(partial(_receive, consumer, messages)) for consumer in consumers])
        client.close()
    for size, runs in zip(QUEUE_SIZES, zip(*rates[1:])):
        yield Figure(
            FAMILY,
            f"client, receive and acknowledge each of {messages:,} x {PAYLOAD_BYTES} B, {KEYS:,} keys, "
            f"a receiver queue of {size:,}",
            PER_SECOND,
            list(runs),
            budget=CLIENT_RATE,
        )


def _receive(consumer, messages: int) -> None:
    for _ in range(messages):
        consumer.acknowledge(consumer.receive(60_000))
