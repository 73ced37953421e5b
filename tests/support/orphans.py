"""Chunks whose messages are never complete, as rows of a topic: very many of them, or large ones."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.topics.numbering import publish_id
from pulsar_spark.table_specs import MESSAGES


def orphans(count: int, chunk_id: int) -> pa.Table:
    """A chunk each of *count* messages of two, and a message in one piece behind them: a publish commit."""
    rows = count + 1
    is_chunk = pa.array(np.arange(rows) < count)
    columns = {
        **_place(publish_id(0, chunk_id), rows),
        "payload": pa.repeat(pa.scalar(b"x"), rows),
        "uuid": pc.if_else(is_chunk, pa.array([f"p-{number}" for number in range(rows)]), None),
        **{
            name: pc.if_else(is_chunk, pa.scalar(value, MESSAGES.schema.field(name).type), None)
            for name, value in (("chunk_id", chunk_id), ("num_chunks_from_msg", 2), ("total_chunk_msg_size", 2))
        },
    }
    return _rows(columns)


def incomplete(number: int, chunks: int, chunk_bytes: int) -> pa.Table:
    """All but the last chunk of a message of so many, of zeros: a publish commit, another for each *number*."""
    rows, total = chunks - 1, chunks * chunk_bytes
    columns = {
        **_place(publish_id(0, number), rows),
        "payload": pa.repeat(pa.scalar(bytes(chunk_bytes)), rows),
        "uuid": pa.repeat(f"p-{number}", rows),
        "chunk_id": pa.array(range(rows), pa.int32()),
        "num_chunks_from_msg": pa.repeat(pa.scalar(chunks, pa.int32()), rows),
        "total_chunk_msg_size": pa.repeat(pa.scalar(total, MESSAGES.schema.field("total_chunk_msg_size").type), rows),
    }
    return _rows(columns)


def _place(publish: str, rows: int) -> dict[str, pa.Array]:
    return {
        "publish_id": pa.repeat(publish, rows),
        "entry_id": pa.array(range(rows)),
        "batch_size": pa.repeat(pa.scalar(1, pa.int32()), rows),
        "partition": pa.repeat(pa.scalar(-1, pa.int32()), rows),
        "publish_time": pa.repeat(pa.scalar(0, MESSAGES.schema.field("publish_time").type), rows),
        "producer_name": pa.repeat("p", rows),
    }


def _rows(columns: dict[str, pa.Array]) -> pa.Table:
    rows = len(columns["entry_id"])
    return pa.Table.from_arrays(
        [columns.get(field.name, pa.nulls(rows, field.type)) for field in MESSAGES.schema], schema=MESSAGES.schema
    )
