"""What people see, and DataFrames consume, of a root of several bundles."""

from contextlib import ExitStack, closing

import pytest

import pulsar_spark as pulsar
from pulsar_spark import frames
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.broker.runner import Broker
from pulsar_spark.broker.service.process import run_broker
from pulsar_spark.frames import to_delta
from pulsar_spark.protocol.topics.bundles import WHOLE
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views.views import create_views
from tests.broker.sharing_broker import sharing
from tests.broker.test_bundles import HIGH, LOW
from tests.support.waiting import eventually

pytestmark = pytest.mark.local_disk


def test_views_and_stats_say_of_each_topic_what_its_bundle_says_once(spark, root):
    with PlainBroker(root), closing(pulsar.Client(f"delta:{root}")) as client:
        for name in (LOW, HIGH):
            consumer, producer = client.subscribe(name, "s"), client.create_producer(name)
            for number in range(4):
                producer.send(b"%d" % number)
            consumer.acknowledge_cumulative([consumer.receive(60_000) for _ in range(2)][-1])
            consumer.close()
    split_bundle(Layout(root))
    with ExitStack() as brokers, closing(pulsar.Client(f"delta:{root}")) as client:
        for layout in layouts_of(Layout(root)):
            brokers.enter_context(PlainBroker(root, bundle=layout.bundle))
        consumer = client.subscribe(HIGH, "s")
        consumer.acknowledge(consumer.receive(60_000))
        consumer.close()
        eventually(lambda: Admin(f"delta:{root}").stats(HIGH)["subscriptions"]["s"]["msgBacklog"] == 1)
    spark = spark.newSession()  # whose views are no other test's
    create_views(spark, root)
    found = {row["topic"]: row["mark_delete_position"] for row in spark.table("cursors").collect()}
    assert spark.table("cursors").count() == 2
    assert found == {LOW: 1, HIGH: 2}
    backlog = {
        row["topic"]: row["backlog"] for row in frames.stats(spark, root).filter("subscription is not null").collect()
    }
    assert backlog == {LOW: 2, HIGH: 1}
    delivered = spark.table("history").filter("event = 'delivered'").select("topic", "first", "round").collect()
    assert len(delivered) == len(set(delivered))
    assert {row["topic"] for row in delivered} == {LOW, HIGH}


def test_two_brokers_with_spark_in_one_session_serve_a_bundle_each(spark, root):
    split_bundle(Layout(root))
    with ExitStack() as brokers, closing(pulsar.Client(f"delta:{root}")) as client:
        for layout in layouts_of(Layout(root)):
            brokers.enter_context(Broker(spark, root, bundle=layout.bundle))
        consumer = client.subscribe([LOW, HIGH], "s")
        for name in (LOW, HIGH):
            client.create_producer(name).send(name.encode())
        found = sorted(consumer.receive(60_000).data().decode() for _ in range(2))
        assert found == sorted([LOW, HIGH])


def test_a_broker_process_with_spark_serves_all_bundles_until_nothing_is_left(spark, root):
    split_bundle(Layout(root))
    with closing(pulsar.Client(f"delta:{root}")) as client:
        for name in (LOW, HIGH):
            Admin(f"delta:{root}").create_topic(name)
        with ExitStack() as brokers:
            for layout in layouts_of(Layout(root)):
                brokers.enter_context(PlainBroker(root, bundle=layout.bundle))
            for name in (LOW, HIGH):
                Admin(f"delta:{root}").create_subscription(name, "s", "earliest")
        for name in (LOW, HIGH):
            client.create_producer(name).send(name.encode())
        rounds = []
        run_broker(root, spark=spark, available_now=True, on_round=lambda result, seconds: rounds.append(result))
        assert len(rounds) >= 2
        admin = Admin(f"delta:{root}")
        assert [each["broker"] for each in admin.bundles()] == [None, None]
        assert [admin.stats(name)["subscriptions"]["s"]["msgBacklog"] for name in (LOW, HIGH)] == [1, 1]
        served_by = {read_latest(layout).round_row["broker_id"] for layout in layouts_of(Layout(root))}
        assert len(served_by) == 1, "one process served both"


def test_consumers_follow_a_topic_whose_bundle_is_split_while_it_is_served(spark, root, tmp_path):
    """What they had not acknowledged comes again, and a sink that writes once does not write it again."""
    found: list[str] = []

    def handle(messages, _) -> None:
        found.extend(bytes(row.payload).decode() for row in messages.select("payload").collect())

    def send(part: range) -> None:
        for number in part:
            producer.send(str(number).encode(), partition_key=f"k{number % 3}")

    with sharing(root) as broker, closing(pulsar.Client(f"delta:{root}")) as client, ExitStack() as consumers:
        producer = client.create_producer(HIGH)
        by_key = dict(subscription_type="KeyShared", timeout=60)
        running = consumers.enter_context(frames.consume(spark, root, HIGH, "keys", handle, **by_key))
        sink = to_delta(str(tmp_path / "sink"))
        writing = consumers.enter_context(frames.consume(spark, root, HIGH, "sink", sink, timeout=60))
        send(range(10))
        eventually(lambda: len({*found}) == 10 and sink.rows_written == 10)
        Admin(f"delta:{root}").split_bundle(str(WHOLE))
        send(range(10, 20))
        eventually(lambda: len({*found}) == 20 and sink.rows_written == 20)
        assert running.exception() is None and writing.exception() is None
        assert {*broker.brokers} == {each.bundle for each in layouts_of(Layout(root))}
    rows = spark.read.format("delta").load(str(tmp_path / "sink")).selectExpr("cast(payload as string)").collect()
    assert sorted(int(row.payload) for row in rows) == [*range(20)]
