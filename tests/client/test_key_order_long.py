"""Order of each key, message by message, while consumers come, go, give back, lose the tail of their queue, and are
killed; on exact ranges and on ranges by lane.

``PULSAR_SPARK_ORDER_MESSAGES=n`` sends n messages, ``PULSAR_SPARK_SEED=s`` draws other events than usual.
"""

import contextlib
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import pulsar_spark as pulsar
from pulsar_spark.protocol.subscriptions.permits import Permits
from pulsar_spark.storage.topics.topics import create_topic

MESSAGES = int(os.environ.get("PULSAR_SPARK_ORDER_MESSAGES", 400))
SEED = int(os.environ.get("PULSAR_SPARK_SEED", 1))
CONSUMERS, PATIENCE_SECONDS = 3, 120 + MESSAGES / 5


class Ledger:
    """What became of each message, and what was handed out that should not have been."""

    def __init__(self, keys: int):
        self.lock = threading.Lock()
        self.sent = {f"k{number}": 0 for number in range(keys)}
        self.held: dict[str, dict[int, object]] = {key: {} for key in self.sent}
        self.acknowledged: dict[str, set[int]] = {key: set() for key in self.sent}
        self.passed = dict.fromkeys(self.sent, 0)
        """How many of the first messages of each key are acknowledged, without a gap."""
        self.wrong: list[str] = []
        self.again, self.is_given_up = 0, False

    def hand_out(self, key: str, number: int, consumer: object) -> None:
        with self.lock:
            held, acknowledged = self.held[key], self.acknowledged[key]
            while self.passed[key] in acknowledged:
                self.passed[key] += 1
            if number in acknowledged:
                self.again += 1
                return
            for earlier in range(self.passed[key], number):
                if earlier not in acknowledged and held.get(earlier) is not consumer:
                    where = "with another consumer" if earlier in held else "not there"
                    self.wrong.append(f"{key}: {number} came while {earlier} was {where}")
            held[number] = consumer

    def acknowledge(self, key: str, number: int) -> None:
        with self.lock:
            self.held[key].pop(number, None)
            self.acknowledged[key].add(number)

    def give_back(self, key: str, number: int) -> None:
        with self.lock:
            self.held[key].pop(number, None)

    def leave(self, consumer: object) -> None:
        with self.lock:
            for key, held in self.held.items():
                self.held[key] = {number: who for number, who in held.items() if who is not consumer}

    @property
    def is_open(self) -> bool:
        return self.left > 0 and not self.is_given_up

    @property
    def left(self) -> int:
        with self.lock:
            return MESSAGES - sum(map(len, self.acknowledged.values()))


class Member:
    """A consumer that is replaced whenever it leaves; *dice* say what happens to it."""

    def __init__(self, url: str, broker, ledger: Ledger, dice: random.Random, queue_size: int):
        self._url, self._broker, self._ledger, self._dice, self._queue_size = url, broker, ledger, dice, queue_size

    def run(self) -> None:
        """Until all messages are acknowledged."""
        while self._ledger.is_open:
            client = pulsar.Client(self._url)
            self._live(client)
            client.shutdown()

    def _live(self, client: pulsar.Client) -> None:
        consumer = client.subscribe(
            "t",
            "s",
            consumer_type=pulsar.ConsumerType.KeyShared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=self._queue_size,
            negative_ack_redelivery_delay_ms=100,
        )
        mine: list[pulsar.Message] = []
        leaves_after = self._dice.randrange(20, 40 + MESSAGES // 8)
        while self._ledger.is_open:
            with contextlib.suppress(pulsar.Timeout):
                message = consumer.receive(50)
                self._ledger.hand_out(*place(message), consumer)
                mine.append(message)
                leaves_after -= 1
            if leaves_after <= 0:
                break
            self._answer(consumer, mine)
        self._leave(consumer)

    def _answer(self, consumer: pulsar.Consumer, mine: list[pulsar.Message]) -> None:
        while mine and (len(mine) > 8 or self._dice.random() < 0.5):
            message = mine.pop(self._dice.randrange(len(mine)))
            if self._dice.random() < 0.05:
                self._ledger.give_back(*place(message))
                consumer.negative_acknowledge(message)
            else:
                self._ledger.acknowledge(*place(message))
                consumer.acknowledge(message)

    def _leave(self, consumer: pulsar.Consumer) -> None:
        self._ledger.leave(consumer)
        if self._dice.random() < 0.5:
            consumer.close()
        else:  # killed: nobody says that it leaves, and it comes not again
            consumer._receiver.close()
            self._broker.end_lease(consumer._consumer_id)


def place(message: pulsar.Message) -> tuple[str, int]:
    return message.partition_key(), int(message.data())


def publish(client, ledger: Ledger, dice: random.Random) -> None:
    """In single messages and in batches by key, of random keys."""
    options = {"hashing_scheme": pulsar.HashingScheme.Murmur3_32Hash, "block_if_queue_full": True}
    by_key = {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased, "batching_max_messages": 60}
    singly = client.create_producer("t", **options)
    in_batches = client.create_producer("t", **by_key, **options)
    left = MESSAGES
    while left:
        producer, count = dice.choice([(singly, 40), (in_batches, 120)])
        for _ in range(min(left, dice.randrange(1, count))):
            key = dice.choice([*ledger.sent])
            producer.send_async(str(ledger.sent[key]).encode(), None, partition_key=key)
            ledger.sent[key] += 1
            left -= 1
        producer.flush()


@pytest.mark.parametrize("queue_size", [1000, 5])
@pytest.mark.parametrize("keys", [20, 100])
def test_each_key_comes_in_order_whatever_happens(client, broker, service_url, monkeypatch, queue_size, keys):
    dice, ledger = random.Random(SEED), Ledger(keys)
    shrinking = random.Random(SEED)
    monkeypatch.setattr("pulsar_spark.client.receiving.queue_watch.WATCH_SECONDS", 0.05)
    monkeypatch.setattr(Permits, "may_shrink", True)
    # What is given back is asked for again: the queue stays as large as it is.
    monkeypatch.setattr(Permits, "too_many", lambda self, queued, **_: shrinking.randrange(queued + 1))
    create_topic(client._layout, "t", 2)
    members = [Member(service_url, broker, ledger, random.Random(dice.random()), queue_size) for _ in range(CONSUMERS)]
    with ThreadPoolExecutor(CONSUMERS) as pool:
        running = [pool.submit(member.run) for member in members]
        try:
            publish(client, ledger, dice)
            for each in running:
                each.result(PATIENCE_SECONDS)
        finally:
            ledger.is_given_up = True
    assert ledger.wrong == [] and ledger.left == 0 and sum(ledger.sent.values()) == MESSAGES
