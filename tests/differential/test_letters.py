"""Random histories of messages put off, the reference broker against real rounds that are planned without Spark: the same replies, letters and states.

Brokers die meanwhile, before or after one of a round's writes, and others take over: each message put off has one letter all the same. Requests are drawn
without regard to sense: batches without an index, indexes that stay unacknowledged, messages acknowledged already or not published yet.
"""
import random

import pytest

from pulsar_spark.protocol import ack_set as ack_sets
from pulsar_spark.storage.tables import AppendTable
from tests.model import Model
from tests.requests import On
from tests.spark_engine import SparkEngine, new_engine

TYPES = ("Shared", "Exclusive", "Failover", "Shared")
ROUNDS = 25


class Crash(Exception):
    """The process is gone at this point."""


class History:
    """Draws what happens next; both brokers are told the same."""

    def __init__(self, seed: int):
        self.dice = random.Random(seed)
        self.topics = {f"persistent://public/default/t-{number}": kind for number, kind in enumerate(TYPES)}
        self.sizes: dict[str, list[int]] = {topic: [] for topic in self.topics}

    def published(self, topic: str) -> list[int]:
        entries = [self.dice.choice([1, 1, 2, 3]) for _ in range(self.dice.choice([0, 0, 1, 4]))]
        self.sizes[topic] += entries
        return entries

    def requests(self, topic: str) -> list[dict]:
        draws = (self._connect, self._connect, self._give_back, self._acknowledge, self._put_off, self._put_off, self._put_off)
        return [self.dice.choice(draws)(On(topic), topic) for _ in range(self.dice.randint(0, 4))]

    def _consumer(self, topic: str) -> str:
        return f"{topic[-1]}-{self.dice.choice('ab')}"

    def _position(self, topic: str) -> int:
        return self.dice.randrange(len(self.sizes[topic]) + 1)

    def _connect(self, on: On, topic: str) -> dict:
        consumer = self._consumer(topic)
        if self.dice.random() < 0.1:
            return on.close(consumer)
        if self.dice.random() < 0.5:
            return on.flow(consumer, self.dice.randint(1, 9))
        return on.subscribe(consumer, self.topics[topic], max_redeliver_count=1, lease_ms=1_000_000)

    def _give_back(self, on: On, topic: str) -> dict:
        if self.dice.random() < 0.2:
            return on.seek(self._position(topic))
        return on.negative_ack(self._consumer(topic), self._position(topic), delay_ms=self.dice.choice([0, 2000]))

    def _acknowledge(self, on: On, topic: str) -> dict:
        position, left = self._position(topic), self.dice.choice([None, None, [0b010], [0b101]])
        acknowledge = self.dice.choice([on.ack, on.ack, on.cumulative_ack])
        return acknowledge(position, ack_set=left, receipt=True)

    def _put_off(self, on: On, topic: str) -> dict:
        dice, position = self.dice, self._position(topic)
        size = (self.sizes[topic] + [1])[position]
        index, is_cumulative = (dice.randrange(size) if size > 1 and dice.random() < 0.95 else None), dice.random() < 0.25
        left = [other for other in range(size) if (other > (index or 0) if is_cumulative else other != index)]
        if dice.random() < 0.05:
            left = list(range(size))
        return on.reconsume_later(position, batch_index=index, ack_set=list(ack_sets.of_indexes(left)) if left and dice.random() < 0.8 and size > 1 else None,
                                  times=dice.randint(1, 3), is_dead=dice.random() < 0.3, is_cumulative=is_cumulative, receipt=True)


def run_round(engine: SparkEngine, requests: list[dict], now_ms: int, dice: random.Random, monkeypatch) -> None:
    """One round; perhaps the broker dies at one of its writes, another takes over and does what is left."""
    number, writes_left, is_before = engine.number, dice.choice([0, 0, 0, 1, 2, 3, 4]), dice.random() < 0.5

    def mortal(append):
        def append_or_die(*arguments):
            nonlocal writes_left
            writes_left -= 1
            if writes_left == 0 and is_before:
                raise Crash
            appended = append(*arguments)
            if writes_left == 0:
                raise Crash
            return appended
        return append_or_die

    with monkeypatch.context() as dying:
        for append in ("append_fenced", "append_once"):
            dying.setattr(AppendTable, append, mortal(getattr(AppendTable, append)))
        try:
            engine.run(requests, now_ms)
            return
        except Crash:
            pass
    engine.restart(now_ms)
    if engine.number == number + 1:  # nothing but the take-over was committed
        engine.run(requests, now_ms)


@pytest.mark.parametrize("seed", range(5))
def test_each_message_put_off_has_one_letter(tmp_path, monkeypatch, seed):
    history, model, engine = History(seed), Model(), new_engine(None, tmp_path)
    for topic in history.topics:
        model.create_topic(topic)
        engine.create_topic(topic)
    for number in range(ROUNDS):
        now_ms, requests, where = 1000 * number, [], f"seed {seed}, round {number}"
        for topic in history.topics:
            if entries := history.published(topic):
                model.publish(topic, -1, entries, publish_time_ms=now_ms)
                engine.publish(topic, -1, entries, publish_time_ms=now_ms)
            requests += history.requests(topic)
        expected = model.round(requests, now_ms)
        run_round(engine, requests, now_ms, history.dice, monkeypatch)
        found = engine.committed()
        assert sorted(map(said, found["replies"])) == sorted(map(said, expected["replies"])), where
        for topic in history.topics:
            for subscription in model.subscriptions(topic):
                assert engine.letters_put_off(topic, subscription) == model.letters_put_off(topic, subscription), f"{where}, {topic}"
                assert engine.letters(topic, subscription) == model.letters(topic, subscription), f"{where}, {topic}"
                assert backlog(engine, topic, subscription) == backlog(model, topic, subscription), f"{where}, {topic}"
    assert sum(len(model.letters_put_off(topic, "s")) for topic in history.topics) > 10


def backlog(broker, topic: str, subscription: str) -> tuple:
    """What is acknowledged, as entries and as parts of batches, whoever holds the rest."""
    state = broker.state(topic, -1, subscription)
    acknowledged = [position for first, last in state["acknowledged"] for position in range(first, last + 1)]
    return state["mark_delete_position"], acknowledged, state["ack_sets"]


def said(reply) -> tuple:
    return (reply.request_id or "", reply.consumer_id or "", reply.error or "")
