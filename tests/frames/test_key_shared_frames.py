"""Frames of a Key_Shared subscription, with a broker in the same session: whose rows, their hashes, and their order."""

from collections import defaultdict
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions as F

from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, publish
from pulsar_spark.frames.deliveries import lane_frames
from pulsar_spark.frames.deliveries.lane_deliveries import LaneRange
from pulsar_spark.frames.deliveries.lane_frames import read_lane
from pulsar_spark.protocol.keys.hash_ranges import HASHES, SLOTS
from pulsar_spark.protocol.keys.lanes import HashRange, LaneHashes
from pulsar_spark.protocol.keys.sticky_key import sticky_key, sticky_key_hash
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries.key_hashes import read_hashes
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


def test_of_a_lane_those_rows_are_read_that_have_its_hashes(spark, root, layout, monkeypatch):
    """Hashes stored, computed from each kind of key, and those of no key; ranges that begin and end inside of files. Of
    files in order of hash each stretch is read by itself where entries were delivered not equally often, so that Delta
    reads them."""
    monkeypatch.setattr(lane_frames, "LEAST_GAP", 1)
    topic = create_topic(layout, "t")
    numbers = spark.range(0, 300, 1, 2).selectExpr("cast(id as string) payload", "concat('k', id % 90) partition_key")
    publish(numbers, root, "t", sort_by_key=True)
    publish(numbers, root, "t")
    publish(numbers.select("payload"), root, "t")
    odd = [
        {"publish_id": "f" * 32, "entry_id": at, "batch_size": 1, "partition": -1, "payload": b"odd"}
        | {"publish_time": datetime(2026, 1, 1, tzinfo=UTC)}
        | key
        for at, key in enumerate(ODD_KEYS)
    ]
    AppendTable(topic.path).append(MESSAGES.rows(odd))
    number(layout, topic)
    end = 900 + len(odd)
    lanes = [
        LaneHashes(SLOTS, (HashRange(0, 32767, 2, 1), HashRange(32768, 65535))),
        LaneHashes(SLOTS, (HashRange(0, 32767, 2, 0),)),
        LaneHashes(HASHES, tuple(HashRange(start, start + 40_000_000) for start in range(0, 2**31, 90_000_000))),
        LaneHashes(HASHES, (HashRange(0, 2**31 - 1),)),
    ]
    ledgers = LedgerIndex(layout)
    hashes = read_hashes(topic.path, ledgers.runs(topic.topic_id, -1, 0, end - 1))
    whole, part = (0, end - 1), (250, 620)
    cases = ((lanes[0], whole, 2), (lanes[0], part, 0), (lanes[1], part, 2), (lanes[2], whole, 2), (lanes[2], part, 0))
    cases += ((lanes[3], whole, 2), (lanes[3], part, 0))
    for lane, (first, last), redeliveries in cases:
        mine = first + np.flatnonzero(lane.holds(hashes[first : last + 1]))
        middle = int(mine[len(mine) // 2])
        held = [
            LaneRange(PositionRange(-1, int(mine[0]), middle - 1), lane, -1, 7),
            LaneRange(PositionRange(-1, middle, int(mine[-1]), redeliveries), lane, -1, 8),
        ]
        chosen = read_lane(spark, topic, ledgers, lane, held, ["payload"], True)
        assert chosen.columns == ["payload", "partition", "ledger_id", "position", "redelivery_count"]
        are_asked = "sticky_key_hash" in chosen._jdf.queryExecution().executedPlan().toString()
        assert are_asked == (lane != lanes[3]), "of a lane that has every hash no row is asked for its own"
        read = read_lane(spark, topic, ledgers, lane, held, ["sticky_key_hash"], False)
        rows = read.select("position", "sticky_key_hash", "redelivery_count").collect()
        assert sorted(map(tuple, rows)) == [
            (at, hashes[at], 0 if at < middle else redeliveries) for at in mine.tolist()
        ]
