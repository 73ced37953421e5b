"""What the rows of a topic and of a cursor say of chunks: by the reference broker's rules, without the broker's
memory."""

import zlib

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.acknowledgement.packing import unpacked_pairs
from pulsar_spark.protocol.chunks import chunking
from pulsar_spark.storage.entries.run_slices import read_slice
from tests.support.model_chunks import Chunk, Chunks

COLUMNS = ["uuid", "chunk_id", "num_chunks_from_msg", "producer_name"]


def columns_of(chunk: Chunk | None) -> dict:
    """The columns of an entry; every chunk carries one byte."""
    if chunk is None:
        return {}
    row = dict(zip(COLUMNS, chunk))
    return row | {"total_chunk_msg_size": max(chunk.num_chunks, 0), "sequence_id": 0, "payload": payload_of(chunk)}


def payload_of(chunk: Chunk) -> bytes:
    """The byte that a chunk carries: another one for each number, uuid and producer."""
    return zlib.crc32(f"{chunk.producer_name} {chunk.uuid} {chunk.chunk_id}".encode()).to_bytes(4)[:1]


def read_chunks(state: TopicState, partition: int, first: int = 0) -> list[Chunk | None]:
    """The entries of a topic partition from a position on."""
    found: list[Chunk | None] = []
    ledgers = state.ledgers(partition)
    for run in ledgers.parts(first, ledgers.end_position - 1):
        if not run.has_chunks:
            found += [None] * run.entries
            continue
        rows = read_slice(state.topic.path, [run], [*COLUMNS, "batch_index"]).to_pylist()
        found += [
            Chunk(*(row[name] for name in COLUMNS)) if row["uuid"] is not None else None
            for row in rows
            if not row["batch_index"]
        ]
    return found


def chunks_of(state: TopicState, partition: int) -> Chunks:
    """All of a topic partition, judged."""
    chunks = Chunks(read_chunks(state, partition))
    chunks.see()
    return chunks


def chunk_set(state: TopicState, partition: int, first: int, last: int) -> tuple[int, ...]:
    """The chunks of the message between two positions, as a reader finds them who is told no more than these."""
    rows = read_chunks(state, partition, first)[: last - first + 1]
    if rows[-1] is None:  # it is deleted
        return ()
    of_message = [place for place, chunk in enumerate(rows) if chunk and _group(chunk) == _group(rows[-1])]
    taken = chunking.parts_of(*([rows[place][column] for place in of_message] for column in (1, 2)))
    return tuple(first + of_message[place] for place in taken)


def _group(chunk: Chunk) -> tuple[str, str]:
    return chunk.producer_name, chunk.uuid


def whole_messages(rows: list[dict]) -> list[dict]:
    """The rows of a topic without partitions, one a message: the last one of those that are in chunks. No chunk may be
    of none."""
    in_order = sorted(rows, key=lambda row: (row["publish_id"], row["entry_id"], row["batch_index"] or 0))
    chunks = Chunks([None if row["uuid"] is None else Chunk(*(row[name] for name in COLUMNS)) for row in in_order])
    chunks.see()
    whole = {position for positions in chunks.messages.values() for position in positions}
    assert chunks.parts <= whole, f"chunks of no message: {[in_order[part] for part in sorted(chunks.parts - whole)]}"
    return [row for position, row in enumerate(in_order) if position not in chunks.parts]


def of_unacknowledged(chunks: Chunks, cursor: dict, held_at: dict[int, Range]) -> set[int]:
    """The chunks of messages that are not acknowledged by the cursor whose row this is, and whose ranges say *held_at*
    of positions behind its mark-delete: complete or not."""
    unacknowledged = [
        positions
        for unit, positions in chunks.messages.items()
        if unit > cursor["mark_delete_position"] and (unit not in held_at or held_at[unit].status != ACKNOWLEDGED)
    ]
    released = unpacked_pairs(cursor["chunks"])
    unacknowledged += [
        positions
        for positions in chunks.open.values()
        if not any(first <= positions[0] <= last for first, last in released)
    ]
    return {position for positions in unacknowledged for position in positions}
