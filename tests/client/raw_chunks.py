"""Chunks made by hand, as the conformance scenarios write them."""

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin


def publish(client: pulsar.Client, topic: str, *entries: str, size: int | None = None) -> list[pulsar.MessageId]:
    """One publish commit each: ``"A:0:3:a0"`` is chunk 0 of 3 of uuid A with a payload (``A@q`` of producer q), any
    other text a message in one piece. Chunks say that their message has as many bytes as if all had this one's, or
    *size*."""
    admin, ids = Admin(f"delta:{client._layout.root}"), []
    for entry in entries:
        if ":" not in entry:
            ids.append(admin.publish_raw_chunk(topic, None, 0, 1, len(entry), entry.encode()))
            continue
        named, chunk_id, chunks, payload = entry.split(":")
        uuid, _, producer = named.partition("@")
        total = int(chunks) * len(payload) if size is None else size
        ids.append(
            admin.publish_raw_chunk(
                topic, uuid, int(chunk_id), int(chunks), total, payload.encode(), producer or "raw-chunks"
            )
        )
    return ids
