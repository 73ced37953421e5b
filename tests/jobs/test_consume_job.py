"""The consume job with Spark: it merges what a transformation makes of the messages, and says so."""

import contextlib
import logging

import pytest

import pulsar_spark as pulsar
from pulsar_spark.jobs import consume
from pulsar_spark.testing.plain_broker import PlainBroker


def by_key(messages):
    """A row for each message: its key, and its payload as a number."""
    return messages.selectExpr("partition_key AS item", "INT(STRING(payload)) AS price", "position")


@pytest.mark.long
def test_a_transformation_is_merged_by_key_and_a_table_is_named(spark, tmp_path, capsys):
    level = logging.getLogger("pulsar_spark").level
    with PlainBroker(tmp_path / "root") as broker:
        with contextlib.closing(pulsar.Client(f"delta:{broker.layout.root}")) as client:
            producer = client.create_producer("orders")
            for number in range(10):
                producer.send(b"%d" % number, partition_key=f"k{number % 3}")
        where = ["--root", str(broker.layout.root), "--topic", "orders", "--subscription", "lake", "--available-now"]
        what = ["--target", f"{tmp_path}/latest", "--transform", f"{__name__}:by_key", "--merge-on", "item"]
        consume.main([*where, *what, "--max-messages", "4"])
        where[where.index("lake")] = "table"
        consume.main([*where, "--target", "default.raw_orders"])
    logging.getLogger("pulsar_spark").setLevel(level)
    assert spark.table("default.raw_orders").count() == 10
    spark.sql("DROP TABLE default.raw_orders")
    assert "done: 10 messages of orders lake acknowledged" in capsys.readouterr().out
    rows = spark.read.format("delta").load(f"{tmp_path}/latest").orderBy("item").collect()
    assert [(row.item, row.price) for row in rows] == [("k0", 9), ("k1", 7), ("k2", 8)]
