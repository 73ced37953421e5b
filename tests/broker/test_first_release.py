"""A root that the first release left is served: ``first_release/root.tar.gz`` was made by it, with cursors in all
states, a consumer of each kind, a policy, delayed and batched messages, a client's publish, and a request that no
broker has read yet. As it is, and brought up to today's layout."""

import json
from contextlib import closing

import pytest

import pulsar_spark as pulsar
from pulsar_spark import frames
from pulsar_spark.broker.runner import Broker
from pulsar_spark.errors import NewerLayout
from pulsar_spark.storage.delta import definitions
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.repair.migrations import MIGRATIONS, migrate_root
from pulsar_spark.storage.topics import topics
from pulsar_spark.storage.topics.topics import layout_version, read_topic
from pulsar_spark.table_specs import CURSOR_LEDGER, MESSAGES
from pulsar_spark.views import create_views
from tests.conftest import START
from tests.support.first_release import FLIGHTS, ORDERS, unpack
from tests.support.positions import read_positions
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine

MADE_MS = 1_716_000_001_000
CURSORS = {"billing": (ORDERS, -1), "workers": (FLIGHTS, 0), "audit": (FLIGHTS, 1)}


@pytest.fixture(params=["as it was left", "brought up"])
def engine(tmp_path, request):
    layout = unpack(tmp_path)
    if request.param == "brought up":
        migrate_root(layout)
    engine = SparkEngine(None, layout)
    for topic in (ORDERS, FLIGHTS):
        found = read_topic(engine.layout, topic)
        engine.topic_ids[topic], engine.tables[topic] = found.topic_id, AppendTable(found.path)
    engine.published = 1000
    return engine


def states(engine) -> dict:
    return json.loads(json.dumps({name: engine.state(*place, name) for name, place in CURSORS.items()}, default=list))


def test_it_stands_as_it_was_left(engine, tmp_path):
    engine.restart(MADE_MS)
    engine.committed()
    left = json.loads((tmp_path / "state.json").read_text())
    assert states(engine) == {name: state | {"recently_joined": {}, "waits": {}} for name, state in left.items()}


def test_it_is_served_on(engine):
    engine.restart(MADE_MS)
    billing = On(ORDERS, -1, "billing")
    first, *_ = engine.publish(ORDERS, -1, [1, 1])
    done = engine.round([billing.ack(4, 5), billing.flow("b1", 100)], MADE_MS)
    delivered = {each.position for each in done["deliveries"] if each.subscription == "billing"}
    assert {first, first + 1} <= delivered
    state = engine.state(ORDERS, -1, "billing")
    assert state["mark_delete_position"] == 7, "4 and 5 close the gap below 6 and 7"
    engine.round([billing.ack(8), billing.ack(9, first + 1)], MADE_MS + 1000)
    due = engine.round([], MADE_MS + 3_600_000)
    assert due["deliveries"] == [] and engine.state(ORDERS, -1, "billing")["mark_delete_position"] == first + 1


def test_spark_reads_what_was_and_what_comes(spark, tmp_path):
    """One table with rows of before and of now; views as ever."""
    layout = unpack(tmp_path)
    migrate_root(layout)
    orders = read_topic(layout, ORDERS)
    row = dict(publish_id="f" * 32, entry_id=0, batch_size=1, partition=-1, payload=b"x", publish_time=START)
    keys = [{"key": "k", "value": b"wrapped", "metadata": [("a", "b")]}]
    AppendTable(orders.path).append(
        MESSAGES.rows(
            [row | dict(sticky_key_hash=65_535, compression="LZ4", uncompressed_size=1, encryption_keys=keys)]
        )
    )
    rows = spark.read.format("delta").load(str(orders.path))
    assert rows.columns == MESSAGES.schema.names
    hashes = rows.groupBy("sticky_key_hash", "compression").count().collect()
    assert {tuple(found) for found in hashes} == {(None, None, 32), (65_535, "LZ4", 1)}
    [found] = rows.where("sticky_key_hash = 65535").select("encryption_keys").collect()
    assert [key.asDict() for key in found[0]] == [{"key": "k", "value": bytearray(b"wrapped"), "metadata": {"a": "b"}}]
    delivered = read_positions(spark, layout, orders, [PositionRange(-1, 0, 29)])
    before = [name for name in MESSAGES.schema_at(1).names if name != "partition"]
    assert delivered.columns == [*before, "partition", "ledger_id", "position", "redelivery_count"]
    assert delivered.count() == 30
    state = spark.read.format("delta").load(str(layout.broker_table("cursor_ledger")))
    assert state.columns == CURSOR_LEDGER.schema.names and state.where("hash_ranges is null").count() == state.count()


def test_a_broker_brings_it_up_at_its_start_and_serves_it(spark, tmp_path, caplog):
    caplog.set_level("INFO", "pulsar_spark")
    layout = unpack(tmp_path)
    with Broker(spark.newSession(), layout.root), closing(pulsar.Client(f"delta:{layout.root}")) as client:
        assert layout_version(layout) == 2
        producer = client.create_producer("from-client")
        consumer = client.subscribe("from-client", "s", initial_position=pulsar.InitialPosition.Earliest)
        assert consumer.receive(60_000).data() == b"hello"
        producer.send(b"of today")
        assert consumer.receive(60_000).data() == b"of today"
    said = [record.getMessage() for record in caplog.records if "layout" in record.getMessage()]
    assert [text.split(" after ")[0] for text in said] == [
        f"broker {said[0].split()[1]} upgrades root {layout.root} from layout 1 to 2",
        f"layout 2: {MIGRATIONS[0].what}",
        f"root {layout.root} has layout 2",
    ]


def test_spark_refuses_a_root_of_a_newer_release(spark, tmp_path, monkeypatch):
    layout = unpack(tmp_path)
    migrate_root(layout)
    monkeypatch.setattr(definitions, "NEWEST_LAYOUT_VERSION", 1)
    monkeypatch.setattr(topics, "_versions", {})
    frame = spark.createDataFrame([("x",)], "payload string")
    for use in (
        lambda: create_views(spark, layout.root),
        lambda: frames.publish(frame, layout.root, ORDERS),
        lambda: frames.consume(spark, layout.root, ORDERS, "s", print),
        lambda: frames.dead_letters(spark, layout.root, ORDERS, subscription="billing"),
        lambda: frames.sent_letters(spark, layout.root),
        lambda: frames.stats(spark, layout.root),
        lambda: Broker(spark.newSession(), layout.root).start(),
    ):
        with pytest.raises(NewerLayout, match="layout 2, this release reads up to 1: install a newer"):
            use()
