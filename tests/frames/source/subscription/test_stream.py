"""A micro-batch that loses messages, has others when it runs again, or acknowledges what was not written, is found
here."""

import os
import random
from collections import Counter

import pytest

from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.frames.source.subscription.micro_batches import Checkpoint, Killed, Query, Sink, consumers_of
from tests.support.waiting import eventually


def send(client, topic: str, *texts: str, **settings) -> None:
    producer = client.create_producer(topic, **settings)
    for text in texts:
        producer.send(text.encode(), partition_key=text)
    producer.close()


def backlog(broker, topic: str = "t", subscription: str = "s", partition: int = -1) -> int:
    with broker.paused():
        cursor = broker.cursor(topic, subscription, partition)
        return sum(
            last - first + 1
            for first, last in cursor.backlog(0, broker.rounds.bundle.topics[cursor.topic].end_position(partition) - 1)
        )


def test_a_committed_micro_batch_is_acknowledged(broker, root, client):
    send(client, "t", "a", "b")
    checkpoint, sink = Checkpoint(), Sink()
    query = Query(root, checkpoint, sink, topic="t", subscription="s")
    assert query.run(1) == 1 and sink.payloads == [b"a", b"b"]
    assert backlog(broker) == 2
    send(client, "t", "c")
    query.run(1)
    eventually(lambda: backlog(broker) == 1)
    query.run()
    eventually(lambda: backlog(broker) == 0)
    query.stop()
    assert sink.payloads == [b"a", b"b", b"c"]
    eventually(lambda: not broker.cursor("t", "s").consumers)


KILLS = int(os.environ.get("PULSAR_SPARK_STREAM_KILLS", "20"))


class Fate:
    """Kills a query after one of its next steps."""

    def __init__(self, rng: random.Random, most: int = 25):
        self._left = rng.randint(1, most)

    def __call__(self, step: str) -> None:
        self._left -= 1
        if not self._left:
            raise Killed(step)


def live(broker, query: Query, rng: random.Random) -> str | None:
    """Run a life of *query*; returns the step after which it ended, None if it was done."""
    try:
        query.run(available_now=rng.random() < 0.7, batches=None if rng.random() < 0.7 else 4)
    except Killed as killed:
        if rng.random() < 0.8:
            query.die(broker)
        else:
            query.stop()
        return str(killed)
    query.stop()
    return None


@pytest.mark.long
@pytest.mark.parametrize("subscription_type", ["Exclusive", "Failover", "Shared", "KeyShared"])
def test_kills_at_random_lose_nothing_and_write_nothing_twice(broker, root, client, subscription_type):
    seed = int(os.environ.get("PULSAR_SPARK_SEED", "1"))
    rng, checkpoint, sink = random.Random(f"{seed} {subscription_type}"), Checkpoint(), Sink()
    create_topic(broker.layout, "t", rng.choice([0, 3]))
    sent, seen, kills = 0, Counter(), 0
    producers = [client.create_producer("t"), client.create_producer("t", batching_enabled=True)]
    while kills < KILLS // 4:
        for _ in range(rng.randint(0, 6)):
            producer = rng.choice(producers)
            producer.send_async(str(sent).encode(), None, partition_key=f"k{sent % 5}")
            sent += 1
        for producer in producers:
            producer.flush()
        most = {"maxMessagesPerTrigger": rng.choice([1, 3, 50])} if rng.random() < 0.8 else {}
        query = Query(
            root, checkpoint, sink, Fate(rng), topic="t", subscription="s", subscriptionType=subscription_type, **most
        )
        step = live(broker, query, rng)
        if step is not None:
            kills, seen[step] = kills + 1, seen[step] + 1
            disaster = rng.random()
            for consumer_id in consumers_of(broker) if disaster < 0.2 else ():
                broker.end_lease(consumer_id)
    query = Query(root, checkpoint, sink, topic="t", subscription="s", subscriptionType=subscription_type)
    query.run(available_now=True)
    query.stop()
    written = [int(payload) for payload in sink.payloads]
    assert sorted(written) == list(range(sent)), (seed, seen)
    assert {int(row["payload"]) for row in sink.every} == set(range(sent))
    for partition in read_topic(broker.layout, "t").partition_indexes:
        assert backlog(broker, partition=partition) == 0, (seed, seen)
    eventually(lambda: not consumers_of(broker))
