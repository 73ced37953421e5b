"""Bytes of a page that are no longer what was written: Spark says so and does not read them, whoever wrote the file."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

import pulsar_spark as pulsar
from pulsar_spark.frames import publish
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.topics.topics import read_topic

TOPIC = "t"


def flip_a_bit(table: Path, payload: bytes) -> None:
    """Of a payload in the newest file of a topic."""
    log = TableLog(table)
    path = table / log.commit(log.latest()).added[0].path
    data = bytearray(path.read_bytes())
    data[data.index(payload[400:500])] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("writer", ["client", "frames"])
def test_a_flipped_bit_of_a_payload_is_refused(spark, layout, writer):
    payload = os.urandom(1000)
    if writer == "client":
        client = pulsar.Client(f"delta:{layout.root}")
        client.create_producer(TOPIC).send(payload)
        client.close()
    else:
        publish(spark.createDataFrame(pa.table({"payload": [payload]})), layout.root, TOPIC)
    table = read_topic(layout, TOPIC).path
    messages = spark.read.format("delta").load(str(table))
    assert [bytes(row.payload) for row in messages.select("payload").collect()] == [payload]
    flip_a_bit(table, payload)
    with pytest.raises(Py4JJavaError, match="CRC checksum verification failed"):
        messages.select("payload").collect()
    assert messages.select("entry_id").count() == 1, "the other columns are as they were"
