"""Tables of which something is torn, as users of DataFrames meet them: the one error, before Spark meets it."""

import contextlib

import pytest

import pulsar_spark as pulsar
from pulsar_spark.errors import CorruptState
from pulsar_spark.frames.reading import topic_messages
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views import views


@pytest.fixture
def torn(tmp_path):
    """A root of which the last commits of these tables are torn."""
    with PlainBroker(tmp_path), contextlib.closing(pulsar.Client(f"delta:{tmp_path}")) as client:
        consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
        client.create_producer("t").send(b"m")
        consumer.receive(60_000)

    def tear(*tables):
        layout = Layout(tmp_path)
        for table in tables:
            path = layout.namespace("public", "default") / "t" if table == "t" else layout.broker_table(table)
            file = TableLog(path).file(TableLog(path).latest())
            file.write_bytes(file.read_bytes()[:100])
        return tmp_path

    return tear


@pytest.fixture(autouse=True)
def no_session(monkeypatch):
    """Whoever reaches Spark fails."""
    for module in (topic_messages, views):
        monkeypatch.setattr(module, "layout_for_frames", lambda spark, root: Layout(root))


def test_a_torn_table_of_the_broker_is_named_before_spark_meets_it(torn):
    with pytest.raises(CorruptState, match="cursor_ledger'.*'pulsar-spark repair'"):
        views.create_views(None, torn("cursor_ledger"))


def test_torn_ledgers_are_named_to_who_reads_messages(torn):
    with pytest.raises(CorruptState, match="ledgers'.*'pulsar-spark repair'"):
        topic_messages.read_messages(None, torn("ledgers"), "t")


def test_a_torn_topic_is_named_before_spark_meets_it(torn):
    with pytest.raises(CorruptState, match="default/t'.*'pulsar-spark repair'"):
        topic_messages.read_messages(None, torn("t"), "t")
