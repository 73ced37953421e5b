"""What waits for its deliver time, as a DataFrame consumer takes it: positions anywhere in the topic, acknowledged and
given back by position; a run that ends with what there is leaves to a later one what is not due."""

import time

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.frames import consume
from pulsar_spark.frames.consuming import backlog
from pulsar_spark.storage.clock import now_micros
from tests.support.waiting import eventually

HOUR = 3_600_000
TYPES = ["Shared", "KeyShared"]


@pytest.fixture
def topic(served, monkeypatch):
    """Twelve messages of three keys; every second one waits, the last for an hour, the next to last for two..."""
    client, now = pulsar.Client(f"delta:{served.layout.root}"), int(time.time() * 1000)
    producer = client.create_producer("t")
    for number in range(12):
        waits = number % 2
        producer.send(
            b"m", partition_key=f"k{number % 3}", deliver_at=now + (6 - number // 2) * HOUR if waits else None
        )
    client.close()
    monkeypatch.setattr(backlog, "now_micros", lambda: now_micros() + served._ahead)
    return served


class Taken:
    """A function that keeps the positions it was called with, delivery by delivery."""

    def __init__(self, fails: int = 0):
        self.deliveries, self.fails = [], fails

    def __call__(self, messages, delivery):
        self.deliveries.append(sorted(messages))
        if len(self.deliveries) <= self.fails:
            raise RuntimeError("not yet")

    @property
    def positions(self) -> list[int]:
        return sorted(position for delivery in self.deliveries for _, position, _ in delivery)


def start(broker, function, kind, **options):
    """A consumer; what it asks is to hold by the broker's clock, which is ahead."""
    options["timeout"] = 24 * 3600
    return consume(None, broker.layout.root, "t", "s", function, subscription_type=kind, **options)


@pytest.mark.parametrize("kind", TYPES)
def test_a_run_leaves_to_a_later_one_what_is_not_due(topic, kind):
    admin = Admin(f"delta:{topic.layout.root}")
    for hours, expected in ((0, [*range(0, 12, 2)]), (2.5, [9, 11]), (0, []), (10, [1, 3, 5, 7])):
        topic.advance(hours * 3600)
        taken = Taken()
        with start(topic, taken, kind, available_now=True) as consumption:
            assert consumption.await_termination(60)
        assert taken.positions == expected, f"after {hours} hours more"
    stats = admin.stats("t")["subscriptions"]["s"]
    assert (stats["msgBacklog"], stats["markDeletePosition"]) == (0, 11)


@pytest.mark.parametrize("kind", TYPES)
def test_what_came_due_is_given_back_and_comes_again(topic, kind):
    taken = Taken()
    with start(topic, taken, kind):
        eventually(lambda: taken.positions == [*range(0, 12, 2)])
        taken.deliveries.clear()
        taken.fails = 1
        topic.advance(3.5 * 3600)
        eventually(lambda: [place[1] for delivery in taken.deliveries[:1] for place in delivery] == [7, 9, 11])
        topic.advance(10)
        eventually(lambda: (-1, 9, 1) in [place for delivery in taken.deliveries for place in delivery])
    assert {count for delivery in taken.deliveries[1:] for _, position, count in delivery if position > 6} == {1}
