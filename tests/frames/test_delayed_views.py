"""What waits for its deliver time, and what became of it, in SQL: the views ``scheduled``, ``pending_acks`` and
``history``."""

import time
from datetime import UTC, datetime

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views import create_views
from tests.support.waiting import eventually, receive_values

SHARED = dict(consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)
HOUR = 3_600_000


@pytest.fixture
def told(spark, tmp_path):
    """Of eight messages every second one waits, position 7 for an hour, 5 for two...; 3 is cancelled, 1 moved to ten
    hours; 7 and 5 came due, and 7 was acknowledged. Another subscription waits for them all."""
    with PlainBroker(tmp_path / "root") as broker:
        client, now = pulsar.Client(f"delta:{tmp_path / 'root'}"), int(time.time() * 1000)
        admin = Admin(f"delta:{tmp_path / 'root'}", timeout_seconds=20)
        consumer = client.subscribe("t", "s", **SHARED)
        producer = client.create_producer("t")
        for number in range(8):
            waits = number % 2
            deliver_at = now + (4 - number // 2) * HOUR if waits else None
            producer.send(str(number).encode(), deliver_at=deliver_at)
        for _ in range(4):
            consumer.acknowledge(consumer.receive(60_000))
        admin.create_subscription("t", "other", "earliest")
        ids = {at: pulsar.MessageId(-1, at + 1, 0) for at in range(8)}
        assert admin.cancel_scheduled("t", "s", ids=[ids[3]], reason="why not")["done"] == {"s": 1}
        moved = datetime.fromtimestamp((now + 10 * HOUR) / 1000, UTC)
        assert admin.reschedule("t", "s", to=moved, ids=[ids[1]])["done"] == {"s": 1}
        broker.advance(2.5 * 3600)
        assert receive_values(consumer, 2) == ["7", "5"]
        consumer.acknowledge(ids[7])
        eventually(lambda: admin.stats("t")["subscriptions"]["s"]["unackedMessages"] == 1)
        admin._requester.timeout_seconds = 24 * 3600
        assert admin.cancel_scheduled("t", "s", ids=[ids[5]])["selected"] == {}
        create_views(spark, tmp_path / "root")
        yield now
        client.close()


def test_views(spark, told):
    scheduled = spark.sql(
        "SELECT position, unix_millis(due_time) AS due, subscriptions FROM scheduled ORDER BY due, position"
    )
    hours = [(row.position, (row.due - told) / HOUR, row.subscriptions) for row in scheduled.collect()]
    assert hours == [(7, 1, ["other"]), (5, 2, ["other"]), (3, 3, ["other"]), (1, 4, ["other"]), (1, 10, ["s"])]
    assert spark.sql("SELECT DISTINCT publish_id, entry_id FROM scheduled").count() == 4
    pending = spark.sql("SELECT first, last, entries, status FROM pending_acks WHERE subscription = 's'")
    assert sorted(tuple(row) for row in pending.collect()) == [(1, 1, 1, "replay"), (5, 5, 1, "pending")]
    history = spark.sql("""
        SELECT event, first, last, properties['reason'] AS reason FROM history
        WHERE subscription = 's' AND 3 <= last AND first % 2 = 1""")
    assert sorted(tuple(row) for row in history.collect()) == [
        ("acknowledged", 7, 7, None),
        ("cancelled", 3, 3, "why not"),
        ("delivered", 5, 5, None),
        ("delivered", 7, 7, None),
    ]
    moved = spark.sql(
        "SELECT first, properties['deliver_at_ms'] AS at FROM history WHERE event = 'rescheduled'"
    ).collect()
    assert [(row.first, int(row.at)) for row in moved] == [(1, told + 10 * HOUR)]
