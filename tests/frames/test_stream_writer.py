"""A stream without a checkpoint publishes its rows again when it is started again, and nobody says so."""

import logging
from types import SimpleNamespace

import pytest

from pulsar_spark.frames.publishing import stream_writer
from pulsar_spark.frames.publishing.stream_writer import TopicWriter

SETTING = "spark.sql.streaming.checkpointLocation"


class JavaWriter:
    def option(self, *_):
        return self

    queryName = option

    def start(self, *_):
        return SimpleNamespace(id=lambda: SimpleNamespace(toString=lambda: "q"))


def writer(**settings) -> TopicWriter:
    spark = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: settings.get(name, default)))
    return TopicWriter(SimpleNamespace(sparkSession=spark, _jdf=SimpleNamespace(writeStream=JavaWriter)), "orders")


@pytest.mark.parametrize(
    "start",
    [
        lambda: writer().option("checkpointLocation", "/c").start(),
        lambda: writer().option("checkpointlocation", "/c").queryName("q").start(),
        lambda: writer().options(checkpointLocation="/c").start(),
        lambda: writer().start(checkpointLocation="/c"),
        lambda: writer(**{SETTING: "/c"}).start(),
    ],
)
def test_a_stream_with_a_checkpoint_starts_without_a_word(start, caplog):
    caplog.set_level(logging.WARNING, stream_writer.log.name)
    start()
    assert caplog.records == []


def test_a_stream_without_a_checkpoint_warns(caplog):
    caplog.set_level(logging.WARNING, stream_writer.log.name)
    writer().option("other", 1).start(queryName="q")
    (record,) = caplog.records
    assert "the stream into topic 'orders' has no checkpoint" in record.getMessage()
    assert "give .option('checkpointLocation', <folder>)" in record.getMessage()
