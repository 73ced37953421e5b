"""Frames of a Key_Shared subscription, with a broker in the same session: whose rows, their hashes, and their order."""

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions as F

from pulsar_spark.broker.runner import Broker
from pulsar_spark.client.model.enums import ConsumerCryptoFailureAction
from pulsar_spark.frames import consume, publish
from pulsar_spark.frames.consuming.call import Caller
from pulsar_spark.frames.deliveries import scattered_reads
from pulsar_spark.frames.deliveries.delivery import Delivery
from pulsar_spark.frames.deliveries.named_entries import NamedEntries, exact
from pulsar_spark.frames.deliveries.scattered_reads import scans_of, scattered
from pulsar_spark.frames.reading.payloads import Decoding
from pulsar_spark.protocol.keys.sticky_key import sticky_key, sticky_key_hash
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.session import spark_session
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import MESSAGES
from tests.admin.broker_double import number
from tests.support.waiting import eventually

WAIT = 60
MESSAGES_SENT = 3000
ODD_KEYS = [
    {"partition_key": "k", "ordering_key": "o"},
    {"partition_key": "k", "ordering_key": ""},
    {"partition_key": None},
    {"partition_key": "AQI=", "partition_key_b64_encoded": True},
    {"partition_key": "AQI", "partition_key_b64_encoded": True},
    {"partition_key": "a%b", "partition_key_b64_encoded": True},
    {"partition_key": "AQI="},
    {"partition_key": "ü" * 7},
    {"partition_key": "k", "sticky_key_hash": 5},
    {"partition_key": "k", "ordering_key": "AP/+", "ordering_key_b64_encoded": True},
    {
        "partition_key": "AQI=",
        "partition_key_b64_encoded": True,
        "ordering_key": "a%b",
        "ordering_key_b64_encoded": True,
    },
]


@pytest.fixture(scope="module")
def served(spark, tmp_path_factory):
    """A root with a broker and a topic "keys" of two partitions: message n has key n % 60."""
    root = tmp_path_factory.mktemp("served") / "root"
    create_topic(Layout(root), "keys", 2)
    broker = Broker(spark_session(for_rounds=True), root)
    assert broker.start(standby_seconds=0)
    numbers = spark.range(0, MESSAGES_SENT, 1, 2)
    publish(numbers.selectExpr("cast(id as string) payload", "concat('k', id % 60) partition_key"), root, "keys")
    yield root
    broker.stop()
    broker.wait()


def test_two_consumers_get_each_key_in_order_and_sum_up_by_key(spark, served):
    """Each groups its own deliveries by key in pandas; what they say of all keys is what was published."""
    found = {name: [] for name in "ab"}

    def summed(messages: pd.DataFrame) -> pd.DataFrame:
        in_order = messages.sort_values(["partition", "position"])
        numbers = in_order["payload"].str.decode("utf-8").astype(int)
        return pd.DataFrame(
            {
                "key": [in_order["partition_key"].iloc[0]],
                "first": [int(numbers.iloc[0])],
                "total": [int(numbers.sum())],
                "is_in_order": [bool(numbers.is_monotonic_increasing)],
            }
        )

    def keep(name):
        def each(messages, delivery):
            by_key = messages.groupBy("partition_key")
            rows = by_key.applyInPandas(summed, "key string, first long, total long, is_in_order boolean")
            found[name].append(rows.toPandas())

        return each

    def subscribe(name):
        return consume(
            spark,
            served,
            "keys",
            "sums",
            keep(name),
            consumer_name=name,
            subscription_type="Key_Shared",
            max_messages=400,
        )

    with subscribe("a"), subscribe("b"):
        assert eventually(lambda: _total(found) == sum(range(MESSAGES_SENT)), 2 * WAIT)
    keys = {name: set(pd.concat(rows)["key"]) for name, rows in found.items()}
    rows = pd.concat([row for rows in found.values() for row in rows])
    assert keys["a"] | keys["b"] == {f"k{key}" for key in range(60)}
    assert rows["is_in_order"].all()
    of_each = defaultdict(list)
    for rows in found.values():
        for row in pd.concat(rows).itertuples():
            of_each[row.key].append(row.first)
    assert all(firsts == sorted(firsts) for key, firsts in of_each.items() if key not in keys["a"] & keys["b"])


def _total(found) -> int:
    return sum(int(frame["total"].sum()) for frames in found.values() for frame in list(frames))


def run_once(spark, root, topic, function, **options):
    with consume(spark, root, topic, "s", function, available_now=True, **options) as consumption:
        assert consumption.await_termination(WAIT)


def test_sorted_by_key_all_rows_of_a_key_are_in_one_task_and_in_order(spark, served):
    found = []

    def keep(messages, delivery):
        assert "sticky_key_hash" not in messages.columns
        tasks = messages.select(F.spark_partition_id().alias("task"), F.monotonically_increasing_id().alias("at"), "*")
        found.append(tasks.select("task", "at", "partition", "position", "partition_key").toPandas())

    run_once(spark, served, "keys", keep, columns=["partition_key"], sorted_by_key=True, with_payload=False)
    rows = pd.concat(found)
    assert len(rows) == MESSAGES_SENT
    for _, of_key in rows.sort_values("at").groupby("partition_key"):
        assert of_key["task"].nunique() == 1
        places = list(zip(of_key["partition"], of_key["position"]))
        assert places == sorted(places) and len(places) == MESSAGES_SENT // 60


def test_every_message_has_the_hash_the_broker_goes_by(spark, served):
    """Stored by its producer, or computed from whatever key it has; rows can be chosen by it."""
    topic = create_topic(Layout(served), "odd")
    rows = [
        {
            "publish_id": "0" * 31 + "1",
            "entry_id": number,
            "batch_size": 1,
            "partition": -1,
            "payload": str(number).encode(),
            "publish_time": datetime(2026, 1, 1, tzinfo=UTC),
            **key,
        }
        for number, key in enumerate(ODD_KEYS)
    ]
    AppendTable(topic.path).append(MESSAGES.rows(rows))
    found, columns = {}, []

    def keep(messages, delivery):
        columns.append(messages.columns)
        chosen = messages.filter("sticky_key_hash >= 0").collect()
        found.update((int(row.payload), row.sticky_key_hash) for row in chosen)

    run_once(spark, served, "odd", keep, subscription_type="KeyShared")

    def expected(key: dict) -> int:
        ordering_key = key.get("ordering_key")
        return sticky_key_hash(
            sticky_key(
                key["partition_key"],
                ordering_key=None if ordering_key is None else ordering_key.encode(),
                is_base64=key.get("partition_key_b64_encoded", False),
                is_ordering_key_base64=key.get("ordering_key_b64_encoded", False),
            )
        )

    hashes = {number: key.get("sticky_key_hash", expected(key)) for number, key in enumerate(ODD_KEYS)}
    assert found == hashes
    flags = {"partition_key_b64_encoded", "ordering_key_b64_encoded"}
    assert all(flags <= set(names) for names in columns), "who publishes these rows elsewhere keeps the keys"


@pytest.mark.parametrize("scans", [[2], [32, 32]], ids=["few bounds", "many bounds"])
def test_only_named_entries_are_read(spark, root, layout, monkeypatch, scans):
    """Of several files and redelivery counts, entries that lie scattered, with and without wide gaps between them."""
    monkeypatch.setattr(scattered_reads, "FEW", scattered_reads.FEW._replace(least_gap=100))
    monkeypatch.setattr(scattered_reads, "MANY", scattered_reads.MANY._replace(most=64, least_gap=10))
    monkeypatch.setattr(scattered_reads, "_MOST_WITH_FEW", 1000 if scans == [2] else 10)
    topic = create_topic(layout, "t")
    numbers = spark.range(0, 6000, 1, 2).selectExpr("cast(id as string) payload", "concat('k', id % 90) partition_key")
    publish(numbers, root, "t")
    publish(numbers.limit(300), root, "t")
    number(layout, topic)
    caller = Caller(
        spark,
        topic,
        LedgerIndex(layout),
        print,
        ["payload"],
        with_payload=True,
        decoding=Decoding.checked(None, ConsumerCryptoFailureAction.FAIL),
    )
    chance = np.random.default_rng(3)
    mine = np.sort(chance.choice(np.append(np.arange(2000), np.arange(4000, 6300)), 500, replace=False))
    again, others = mine[::5], np.delete(mine, np.s_[::5])
    held = [
        NamedEntries(PositionRange(-1, int(at[0]), int(at[-1]), count), at, round)
        for at, count, round in ((others[:200], 0, 7), (others[200:], 0, 8), (again, 2, 8))
    ]
    delivery = Delivery(str(topic.name), topic.topic_id, "s", "c", 8, tuple(held))
    expected = [*((at, 0) for at in others.tolist()), *((at, 2) for at in again.tolist())]
    for ranges in (delivery.ranges, exact(delivery.ranges)):
        rows = caller._stored(replace(delivery, ranges=tuple(ranges)), (), ["payload"])
        assert sorted(map(tuple, rows.select("position", "redelivery_count").collect())) == sorted(expected)
    assert [len(ranges) for ranges in scans_of(scattered(held)[0])] == scans
