"""Odd names of topics, subscriptions, consumers, keys and properties (see tests/client/test_names) in frames and views:
one topic each, published as a frame, consumed as one, read by SQL."""

import contextlib

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.frames import consume, dead_letters, publish, read_messages, stats, to_delta
from pulsar_spark.storage.layout import Layout
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views import create_views
from pulsar_spark.views.catalog import register
from tests.client.test_names import ODD
from tests.frames.sql_names import topic_table
from tests.support.waiting import eventually

WAIT = 600
NAMES = [
    ODD[what]
    for what in (
        "per cent",
        "quotes",
        "a backslash",
        "what SQL and shells read",
        "what Spark's paths read",
        "other scripts",
        "control characters",
    )
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("names") / "root"
    with PlainBroker(root):
        yield root


@pytest.fixture(scope="module")
def published(spark, served):
    """Every topic, with one message under its own name."""
    for name in NAMES:
        row = [(b"x", name, {name: name})]
        frame = spark.createDataFrame(row, "payload binary, partition_key string, properties map<string, string>")
        publish(frame, served, name, producer_name=name)
    return served


def test_topics_are_read_by_frames_and_by_sql(spark, published):
    register(spark, Layout(published), prefix="names_")
    for name in NAMES:
        for found in (read_messages(spark, published, name), spark.table(topic_table(name, prefix="names_"))):
            (row,) = found.select("partition_key", "properties", "producer_name").collect()
            assert (row.partition_key, dict(row.properties), row.producer_name) == (name, {name: name}, name)
    for schema in ("names_public_ns_default", "names_pulsar_spark"):
        spark.sql(f"drop schema {schema} cascade")


def test_subscriptions_are_consumed_as_frames_and_seen_in_views(spark, published, tmp_path):
    for number, name in enumerate(NAMES):
        options = dict(consumer_name=name, initial_position="Earliest", available_now=True)
        sink = to_delta(tmp_path / f"sink{number}")
        with consume(spark, published, name, name, sink, **options) as consumption:
            assert consumption.await_termination(WAIT)
        (row,) = spark.read.format("delta").load(str(tmp_path / f"sink{number}")).collect()
        assert row.partition_key == name
    create_views(spark, published)
    found = spark.table("cursors").select("topic", "subscription")
    assert {tuple(row) for row in found.collect()} == {(f"persistent://public/default/{name}", name) for name in NAMES}
    seen = {row.subscription for row in stats(spark, published).select("subscription").collect()}
    assert seen >= {*NAMES}


def test_dead_letters_of_them_are_listed(spark, published):
    with contextlib.closing(pulsar.Client(f"delta:{published}")) as client:
        for name in NAMES:
            subscription = f"{name}2"
            consumer = client.subscribe(
                name,
                subscription,
                consumer_type=pulsar.ConsumerType.Shared,
                initial_position=pulsar.InitialPosition.Earliest,
                dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1),
                retry_enable=True,
                consumer_name=name,
            )
            for _ in range(2):
                consumer.reconsume_later(consumer.receive(60_000), 0)
            dead = f"{name}-{subscription}-DLQ"
            eventually(lambda dead=dead: _has_letter(published, dead))
            consumer.close()
            (letter,) = dead_letters(spark, published, name, subscription=subscription).collect()
            assert letter.partition_key == name


def _has_letter(root, topic: str) -> bool:
    """The topic is there before its first letter."""
    admin = Admin(f"delta:{root}")
    return any(
        each["topic"].endswith(topic) and admin.stats(each["topic"])["msgInCounter"] for each in admin.list_topics()
    )
