"""Random histories, the reference broker against Spark's rounds: the same deliveries, replies and states, round by round, also over restarts.

A history is a seed. Each plays on several topics at once, each topic with a subscription of one type, so that one plan serves them all and none may leak into
another. Requests are drawn without regard to sense: for consumers that are not there, positions already acknowledged or not published yet.
"""
import random

import pytest

from pulsar_spark.protocol import ack_set as ack_sets
from tests.model import Model
from tests.requests import On
from tests.spark_engine import new_engine

TYPES = ("Shared", "Shared", "Shared", "Exclusive", "Failover", "Shared")
ROUNDS = 30
MOST_ENTRIES = 60


class History:
    """Draws what happens next; both engines are told the same."""

    def __init__(self, seed: int):
        self.dice = random.Random(seed)
        self.topics = [f"persistent://public/default/{kind.lower()}-{number}" for number, kind in enumerate(TYPES)]
        self.sizes: dict[str, list[int]] = {topic: [] for topic in self.topics}

    def policies(self) -> list[dict]:
        limited = [On(topic) for topic, kind in zip(self.topics, TYPES) if kind == "Shared"][1:]
        return [on.policy(name, self.dice.choice(limits)) for on in limited for name, limits in (
            ("max_unacked_messages_per_consumer", (6, 9)), ("max_unacked_messages_per_subscription", (12, 15)))]

    def published(self, topic: str) -> list[int]:
        """Batch sizes of the entries published now; often none."""
        if self.dice.random() > 0.35 or len(self.sizes[topic]) > MOST_ENTRIES:
            return []
        entries = [self.dice.choice([1, 1, 1, 2, 4]) for _ in range(self.dice.randint(1, 5))]
        self.sizes[topic] += entries
        return entries

    def requests(self, topic: str, kind: str) -> list[dict]:
        return [request for _ in range(self.dice.randint(0, 3)) if (request := self._request(On(topic), topic, kind))]

    def _request(self, on: On, topic: str, kind: str) -> dict | None:
        dice, sizes = self.dice, self.sizes[topic]
        consumer = f"{topic[-1]}-{dice.choice('abc')}"
        asked = dice.choices(["subscribe", "flow", "ack", "ack_set", "cumulative", "nack", "redeliver", "close", "seek", "skip"],
                             [15, 30, 17, 8, 6, 11, 4, 5, 2, 2])[0]
        if asked == "subscribe":
            return on.subscribe(consumer, kind, priority_level=dice.choice([0, 0, 1]))
        if asked == "flow":
            return on.flow(consumer, dice.randint(1, 12))
        if not sizes:
            return None
        first = dice.randrange(len(sizes))
        last = min(len(sizes) - 1, first + dice.choice([0, 0, 0, 1, 3]))
        left = [index for index in range(sizes[first]) if dice.random() < 0.5]
        return {
            "ack": lambda: on.ack(first, last, receipt=True),
            "ack_set": lambda: on.ack(first, ack_set=list(ack_sets.of_indexes(left)), receipt=True),
            "cumulative": lambda: on.cumulative_ack(first, receipt=True),
            "nack": lambda: on.negative_ack(consumer, first, last, delay_ms=dice.choice([0, 0, 2000, 3000])),
            "redeliver": lambda: on.redeliver_all(consumer),
            "close": lambda: on.close(consumer),
            "seek": lambda: on.seek(dice.randrange(len(sizes) + 1)),
            "skip": lambda: on.skip(dice.randint(1, 3)),
        }[asked]()


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_spark_does_what_the_reference_broker_does(spark, tmp_path, seed):
    history, model, engine = History(seed), Model(), new_engine(spark, tmp_path)
    for topic in history.topics:
        model.create_topic(topic)
        engine.create_topic(topic)
    for number in range(ROUNDS):
        now_ms = 1000 * number
        if history.dice.random() < 0.1 and number:
            engine.start()
        requests = history.policies() if number == 0 else []
        for topic, kind in zip(history.topics, TYPES):
            if entries := history.published(topic):
                model.publish(topic, -1, entries, publish_time_ms=now_ms)
                engine.publish(topic, -1, entries, publish_time_ms=now_ms)
            requests += history.requests(topic, kind)
        turn = engine.number
        found, expected = engine.round(requests, now_ms), model.round(requests, now_ms, number=turn)
        where = f"seed {seed}, round {number}"
        assert [tuple(delivery) for delivery in found["deliveries"]] == [tuple(delivery) for delivery in expected["deliveries"]], where
        assert sorted(map(_said, found["replies"])) == sorted(map(_said, expected["replies"])), where
        for topic in history.topics:
            assert engine.subscriptions(topic) == model.subscriptions(topic), where
            for subscription in model.subscriptions(topic):
                assert engine.state(topic, -1, subscription) == model.state(topic, -1, subscription), f"{where}, {topic}"


def _said(reply) -> tuple:
    return (reply.request_id or "", reply.consumer_id or "", reply.error or "")
