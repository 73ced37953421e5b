"""The views backlog, activity and rounds against the overview, and against an account of what was sent."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.broker.upkeep.activity import ActivityUpkeep
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CURSOR_COUNTERS
from pulsar_spark.storage.layout import Layout
from pulsar_spark.table_specs import ACTIVITY
from pulsar_spark.testing.broker import Broker
from pulsar_spark.testing.clock import Clock
from pulsar_spark.views.overview import Overview
from pulsar_spark.views.overview.backlog_rows import as_row
from pulsar_spark.views.view_specs import ACTIVITY_OVER_TIME, BACKLOG
from pulsar_spark.views.views import create_views
from tests.support.waiting import DEADLINE_SECONDS, send

WAIT = DEADLINE_SECONDS * 1000
OF_NOW = ("backlog_age_seconds", "oldest_unacked_seconds", "rate_in", "rate_out")
"""Columns that differ from one look to the next."""


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """Two minutes: 6 messages, of which 4 are acknowledged; 3 more, of which one comes back, and one is acknowledged.
    A third subscription nobody uses."""
    path = tmp_path_factory.mktemp("views") / "root"
    with Clock() as clock, Broker(path, clock=clock) as broker:
        upkeep = ActivityUpkeep(broker.layout, broker.rounds, broker._batches.lock)
        client = pulsar.Client(broker.service_url)
        consumer = client.subscribe("t", "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
        client.subscribe("t", "idle").close()
        for texts, acknowledged in (("abcdef", 4), ("ghi", 1)):
            send(client, "t", *texts)
            for _ in range(acknowledged):
                consumer.acknowledge(consumer.receive(WAIT))
            consumer.negative_acknowledge(consumer.receive(WAIT))
            broker.settle()
            clock.advance(seconds=5)
            broker.settle()
            clock.advance(minutes=1)
            upkeep.look()
        client.close()
        broker.settle()
        upkeep.close()
    return path


@pytest.fixture
def views(spark, used):
    return create_views(spark, used)


def test_backlog_has_the_numbers_of_the_overview(spark, used, views):
    found = [row.asDict() for row in spark.table("backlog").collect()]
    expected = [as_row(state) for state in Overview(Layout(used)).look().subscriptions]
    for row in (*found, *expected):
        for name in OF_NOW:
            row.pop(name)
        row["oldest_publish_time"] = row["oldest_publish_time"] and row["oldest_publish_time"].timestamp()
    assert found == expected and len(found) == 2
    assert spark.table("backlog").columns == [column.name for column in BACKLOG.columns]


def test_activity_adds_up_to_what_happened(spark, used, views):
    assert spark.table("activity").columns == [column.name for column in ACTIVITY_OVER_TIME.columns]
    (s,) = spark.sql(
        "SELECT sum(published) published, sum(delivered) - sum(redelivered) delivered, sum(acknowledged) acknowledged, "
        "sum(dead) dead, max_by(backlog, minute_time) backlog FROM activity WHERE subscription = 's'"
    ).collect()
    assert s.asDict() == {"published": 9, "delivered": 9, "acknowledged": 5, "dead": 0, "backlog": 4}
    (topic,) = spark.sql("SELECT sum(published), max(delivered) FROM activity WHERE subscription IS NULL").collect()
    assert tuple(topic) == (9, None)
    minutes = spark.sql("SELECT published FROM activity WHERE subscription = 'idle' ORDER BY minute_time").collect()
    assert [row.published for row in minutes if row.published] == [6, 3]


def test_rounds_add_up_to_the_counters_of_cursors(spark, used, views):
    (of_rounds,) = spark.sql(
        "SELECT sum(delivered), sum(redelivered), sum(acknowledged), sum(dead) FROM rounds"
    ).collect()
    counters = ", ".join(f"sum({name})" for name in CURSOR_COUNTERS)
    (of_cursors,) = spark.sql(f"SELECT {counters} FROM cursors").collect()
    assert tuple(of_rounds) == tuple(of_cursors)
    (row,) = spark.sql(
        "SELECT sum(published), count(plan_ms) > 1, count(write_ms) > 1, sum(returned) > 0 FROM rounds"
    ).collect()
    assert tuple(row) == (9, True, True, True)


def test_a_root_without_samples_has_no_activity(spark, layout):
    create_views(spark, layout.root)
    assert spark.table("activity").count() == 0 and not layout.broker_table(ACTIVITY.name).exists()
