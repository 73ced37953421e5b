"""Cursors of several pages: a round reads and rewrites every page that what it hands out reaches over."""

import pytest

from pulsar_spark.broker.cursors import pages
from pulsar_spark.broker.gathering import affected
from pulsar_spark.storage.cursor_ledger import range_rows
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


@pytest.fixture(params=[False, True], ids=["objects", "packed"])
def engine(tmp_path, monkeypatch, request) -> SparkEngine:
    monkeypatch.setattr(pages, "MAX_PAGE_RANGES", 1)
    if request.param:
        monkeypatch.setattr(pages, "REST_AFTER", 1)
        monkeypatch.setattr(range_rows, "LARGE", 0)
        monkeypatch.setattr(affected, "PACKED_FROM", 0)
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    return engine


def test_what_is_acknowledged_ahead_of_reading_is_not_delivered_whatever_its_page(engine):
    engine.publish(TOPIC, -1, [1, 2, 1, 2, 1, 2, 1])
    engine.round([ON.subscribe("A"), ON.ack(2), ON.ack(3), ON.ack(5)], 1)
    result = engine.round([ON.flow("A", 99)], 2)
    assert [delivery.position for delivery in result["deliveries"]] == [0, 1, 4, 6]
    assert engine.state(TOPIC, -1, "s")["acknowledged"] == [(2, 3), (5, 5)]
    engine.restart(3)
    engine.round([ON.ack(0), ON.ack(1), ON.ack(4), ON.ack(6)], 3)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 6
