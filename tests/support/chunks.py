"""Chunks made by hand: entries written as ``"A:0:3"`` (uuid, chunk id, count), any other text is a message in one
piece."""

from datetime import datetime, timezone

from pulsar_spark.table_specs import MESSAGES

PRODUCER = "p"


def publish(engine, topic: str, *entries: str, partition: int = -1, **columns) -> list[int]:
    """One entry each, in one commit; their positions."""
    engine.published += 1
    engine.tables[topic].append(
        MESSAGES.rows(
            [
                dict(
                    publish_id=f"{engine.published:032x}",
                    entry_id=entry_id,
                    batch_size=1,
                    partition=partition,
                    publish_time=datetime.fromtimestamp(engine.now_ms / 1000, timezone.utc),
                    payload=entry.encode(),
                    **(chunk(entry) | columns),
                )
                for entry_id, entry in enumerate(entries)
            ]
        )
    )
    before = engine.rounds.bundle.topic(topic).end_position(partition)
    return list(range(before, before + len(entries)))


def chunk(entry: str) -> dict:
    """The chunk columns of an entry; ``A@q:0:3`` is of producer q."""
    if ":" not in entry:
        return {"producer_name": PRODUCER}
    named, chunk_id, count = entry.split(":")
    uuid, _, producer = named.partition("@")
    return {
        "producer_name": producer or PRODUCER,
        "uuid": uuid,
        "chunk_id": int(chunk_id),
        "num_chunks_from_msg": int(count),
        "total_chunk_msg_size": 5 * int(count),
    }
