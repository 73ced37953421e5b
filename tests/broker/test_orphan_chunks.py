"""Chunks whose messages are never complete, very many: each takes the broker a few bytes, and the rest flows. A
million of them are measured (tests.benchmarks.chunks)."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.protocol.numbering import publish_id
from pulsar_spark.table_specs import MESSAGES
from tests.requests import On
from tests.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ORPHANS = 100_000
MOST_BYTES_EACH = 200
"""What the broker may hold for good of a message that is not complete, in its own memory."""


def orphans(chunk_id: int) -> pa.Table:
    """One chunk each of so many messages of two, and a message in one piece behind them."""
    rows = ORPHANS + 1
    is_chunk = pa.array(np.arange(rows) < ORPHANS)
    columns = {
        "publish_id": pa.repeat(publish_id(0, chunk_id), rows),
        "entry_id": pa.array(range(rows)),
        "batch_size": pa.repeat(pa.scalar(1, pa.int32()), rows),
        "partition": pa.repeat(pa.scalar(-1, pa.int32()), rows),
        "payload": pa.repeat(pa.scalar(b"x"), rows),
        "publish_time": pa.repeat(pa.scalar(0, MESSAGES.schema.field("publish_time").type), rows),
        "producer_name": pa.repeat("p", rows),
        "uuid": pa.compute.if_else(is_chunk, pa.array([f"p-{number}" for number in range(rows)]), None),
        **{
            name: pa.compute.if_else(is_chunk, pa.scalar(value, MESSAGES.schema.field(name).type), None)
            for name, value in (("chunk_id", chunk_id), ("num_chunks_from_msg", 2), ("total_chunk_msg_size", 2))
        },
    }
    return pa.Table.from_arrays(
        [columns.get(field.name, pa.nulls(rows, field.type)) for field in MESSAGES.schema], schema=MESSAGES.schema
    )


@pytest.mark.parametrize("chunk_id", [0, 1], ids=["never finished", "never begun"])
def test_orphans_take_little(tmp_path, chunk_id):
    engine, on = new_engine(None, tmp_path), On(TOPIC)
    engine.create_topic(TOPIC)
    engine.round([on.subscribe("A"), on.flow("A", 9)], 1)
    engine.tables[TOPIC].append(orphans(chunk_id))
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    delivered = engine.round([], 2)["deliveries"]
    held = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    assert [delivery.position for delivery in delivered] == [ORPHANS]
    assert held < MOST_BYTES_EACH * ORPHANS
    engine.round([on.ack(ORPHANS)], 3)
    engine.restart(4)
    assert not engine.round([], 4)["deliveries"]
    (cursor,) = engine.rounds.bundle.cursors.values()
    assert cursor.visible_mark_delete == (ORPHANS if chunk_id else -1)
