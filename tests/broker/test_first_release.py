"""A root that the first release left is served: ``first_release/root.tar.gz`` was made by it, with cursors in all
states, a consumer of each kind, a policy, delayed and batched messages, a client's publish, and a request that no
broker has read yet."""

import json
import tarfile
from pathlib import Path

import pytest

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.tables import AppendTable
from pulsar_spark.storage.topics import read_topic
from tests.requests import On
from tests.spark_engine import SparkEngine

MADE_MS = 1_716_000_001_000
ORDERS, FLIGHTS = "persistent://public/default/orders", "persistent://public/default/flights"
CURSORS = {"billing": (ORDERS, -1), "workers": (FLIGHTS, 0), "audit": (FLIGHTS, 1)}


@pytest.fixture
def engine(tmp_path):
    with tarfile.open(Path(__file__).parent / "first_release" / "root.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    engine = SparkEngine(None, Layout(tmp_path / "root"))
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
    assert states(engine) == json.loads((tmp_path / "state.json").read_text())


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
