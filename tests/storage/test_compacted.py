"""The compacted view of a topic: what a crash leaves, who may compact, and what becomes of what was trimmed."""

import multiprocessing
import os
import signal
from datetime import datetime, timedelta, timezone

import pytest

import pulsar_spark as pulsar
from pulsar_spark.broker import compaction, compaction_plan
from pulsar_spark.errors import MessagesLost, NotAllowedError
from pulsar_spark.protocol.compaction import ERROR, NOT_RUN, RUNNING, SUCCESS
from pulsar_spark.storage import compacted
from pulsar_spark.storage.compacted import CompactedView
from pulsar_spark.storage.compaction_status import ENDED, compacting, compaction_status
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import create_topic, delete_topic, read_topic
from pulsar_spark.storage.trimming import trim_topic
from pulsar_spark.storage.upkeep import vacuum
from tests.broker.mortal_broker import Crash, crash_at

TOPIC = "persistent://public/default/t"


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path / "root")


@pytest.fixture
def topic(layout):
    return create_topic(layout, TOPIC)


@pytest.fixture
def send(topic, layout):
    """Publishes messages, each a key and a payload."""
    client = pulsar.Client(f"delta:{layout.root}")
    producer = client.create_producer(TOPIC)
    yield lambda *sent: [producer.send(value.encode(), partition_key=key) for key, value in sent]
    client.close()


def compact(layout, **options):
    found = read_topic(layout, TOPIC)
    return compaction.compact(layout, found, found.partition_indexes, **options)


def shown(layout):
    view = CompactedView(read_topic(layout, TOPIC).path)
    rows = [row for rows in view.rows_behind(-1, 0) for row in rows.to_pylist()]
    return {row["partition_key"]: row["payload"].decode() for row in rows}


def status(layout):
    found = read_topic(layout, TOPIC)
    return compaction_status(found, CompactedView(found.path))
