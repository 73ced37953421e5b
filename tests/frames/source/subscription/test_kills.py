"""A stream that is killed at any step, beside other consumers, delays and dead letters, and loses a message, writes one
twice, or acknowledges one that was not written, is found here."""

import multiprocessing
import os
import random
import signal
from collections import Counter
from datetime import timedelta

import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.topics.topics import create_topic
from tests.frames.source.subscription.micro_batches import (
    STEPS,
    Checkpoint,
    Files,
    Killed,
    Query,
    Sink,
    consumers_of,
    payloads_left,
    run_and_kill,
)
from tests.support.waiting import eventually

KILLS = int(os.environ.get("PULSAR_SPARK_STREAM_KILLS", "20"))
SEED = int(os.environ.get("PULSAR_SPARK_SEED", "1"))
TYPES = ("Exclusive", "Failover", "Shared", "KeyShared")
HISTORIES = max(1, KILLS // 40)
"""Of each type."""


class Fate:
    """Kills a query after one of its next steps."""

    def __init__(self, rng: random.Random, most: int = 25):
        self._left = rng.randint(1, most)

    def __call__(self, step: str) -> None:
        self._left -= 1
        if not self._left:
            raise Killed(step)


class History:
    """A subscription of one or two topics: a stream with many lives, and on shared types another consumer between them,
    which gives messages back until they are dead."""

    def __init__(self, broker, clock, client, subscription_type: str, rng: random.Random):
        self.broker, self.clock, self.client, self.rng = broker, clock, client, rng
        self.root, self.type = broker.layout.root, subscription_type
        self.checkpoint, self.sink, self.kills = Checkpoint(), Sink(), Counter[str]()
        self.topics = ["t", "u"][: rng.choice([1, 2])]
        for topic in self.topics:
            create_topic(broker.layout, topic, rng.choice([0, 3]))
        self.has_letters = subscription_type in TYPES[2:] and rng.random() < 0.7
        self.policy = pulsar.ConsumerDeadLetterPolicy(1, "dead") if self.has_letters else None
        self.sent, self.by_others = 0, set[int]()
        self.producers = [
            client.create_producer(topic, batching_enabled=is_batching)
            for topic in self.topics
            for is_batching in (False, True)
        ]

    def query(self, fate=len) -> Query:
        most = {"maxMessagesPerTrigger": self.rng.choice([1, 3, 50])} if self.rng.random() < 0.8 else {}
        letters = {"maxRedeliverCount": 1, "deadLetterTopic": "dead"} if self.has_letters else {}
        return Query(
            self.root,
            self.checkpoint,
            self.sink,
            fate,
            **{"topics": ",".join(self.topics), "subscription": "s", "subscriptionType": self.type, **most, **letters},
        )

    def send(self) -> None:
        for _ in range(self.rng.randint(0, 6)):
            delay = timedelta(seconds=self.rng.choice([5, 50])) if self.rng.random() < 0.3 else None
            self.rng.choice(self.producers).send_async(
                str(self.sent).encode(), None, partition_key=f"k{self.sent % 5}", deliver_after=delay
            )
            self.sent += 1
        for producer in self.producers:
            producer.flush()

    def live(self) -> None:
        """A life of the stream; its process is killed, or closes it in time, and perhaps its leases end."""
        query = self.query(Fate(self.rng))
        try:
            query.run(available_now=self.rng.random() < 0.7, batches=None if self.rng.random() < 0.7 else 4)
            query.stop()
        except Killed as killed:
            self.kills[str(killed)] += 1
            if self.rng.random() < 0.8:
                query.die(self.broker)
            else:
                query.stop()
        for consumer_id in consumers_of(self.broker) if self.rng.random() < 0.2 else ():
            self.broker.end_lease(consumer_id)

    def consume_beside(self) -> None:
        """Another consumer acknowledges some of what it gets, gives some back, and leaves some."""
        consumer = self.client.subscribe(
            self.topics,
            "s",
            pulsar.ConsumerType[self.type],
            dead_letter_policy=self.policy,
            negative_ack_redelivery_delay_ms=100,
        )
        for _ in range(2):
            self.clock.advance(seconds=1)
            while (message := _next(consumer)) is not None:
                if (fate := self.rng.random()) < 0.2:
                    consumer.acknowledge(message)
                    self.by_others.add(int(message.data()))
                elif fate < 0.8:
                    consumer.negative_acknowledge(message)
        consumer.close()
        self.broker.settle()

    def left(self) -> set[int]:
        """The messages that are not acknowledged."""
        return set[int]().union(*(payloads_left(self.broker, topic, "s") for topic in self.topics))

    def check(self) -> None:
        """What is acknowledged was written, or somebody else's, or is dead; the sink has nothing twice."""
        self.broker.settle()
        written = [int(payload) for payload in self.sink.payloads]
        assert len(written) == len(set(written)), self.kills
        dead = {int(letter.data()) for letter in self.broker.published("dead")}
        assert {*range(self.sent)} - self.left() <= {*written} | self.by_others | dead, self.kills

    def end(self) -> None:
        """All that is left is written, or somebody else's, or dead; nothing is in the backlog."""
        self.clock.advance(minutes=1)
        query = self.query()
        query.run(available_now=True)
        query.stop()
        self.check()
        assert self.left() == set(), self.kills
        assert {int(row["payload"]) for row in self.sink.every} == {int(payload) for payload in self.sink.payloads}
        eventually(lambda: not consumers_of(self.broker))


def _next(consumer) -> pulsar.Message | None:
    try:
        return consumer.receive(20)
    except pulsar.Timeout:
        return None


@pytest.mark.long
@pytest.mark.parametrize("subscription_type", TYPES)
@pytest.mark.parametrize("number", range(HISTORIES))
def test_kills_at_random_lose_nothing_and_write_nothing_twice(broker, clock, client, subscription_type, number):
    history = History(broker, clock, client, subscription_type, random.Random(f"{SEED} {subscription_type} {number}"))
    while history.kills.total() < KILLS // 4 // HISTORIES:
        history.send()
        if history.rng.random() < 0.3:
            clock.advance(seconds=20)
        history.live()
        if subscription_type in TYPES[2:] and history.rng.random() < 0.3:
            history.consume_beside()
        history.check()
    history.end()


@pytest.mark.long
@pytest.mark.parametrize("subscription_type", TYPES)
def test_a_process_that_is_killed_after_each_step(broker, client, tmp_path, subscription_type):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([run_and_kill.__module__])
    create_topic(broker.layout, "t", 2)
    options = {"topic": "t", "subscription": "s", "subscriptionType": subscription_type}
    files, sent = tmp_path / "files", []
    files.mkdir()
    for step in (*STEPS, None):
        for partition in range(2):
            sent.append(f"{step} {partition}")
            client.create_producer(f"t-partition-{partition}").send(sent[-1].encode(), partition_key=str(partition))
        process = context.Process(target=run_and_kill, args=(str(broker.layout.root), files, step, options))
        process.start()
        process.join(600)
        assert process.exitcode == (0 if step is None else -signal.SIGKILL), step
    assert sorted(payload.decode() for payload in Files(files).payloads) == sorted(sent)
    assert broker.backlog("t", "s") == 0
    eventually(lambda: not consumers_of(broker))
