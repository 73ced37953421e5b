"""A message's payload as a producer sends it: whole, or cut into chunks.

Rule: ProducerImpl.sendAsync (semantics 0.9, 1.2-1.5). A message whose payload does not fit into one piece becomes
chunks of one uuid, ``<producerName>-<sequenceId>``, each an entry with everything else the message says: who sends it
again repeats the uuid, and begins the message anew. Slices of the payload are views: nothing is copied before a chunk
is written.
"""

from pulsar_spark.client.producer_settings import ProducerSettings
from pulsar_spark.client.publish_rows import Outgoing
from pulsar_spark.errors import MessageTooBig
from pulsar_spark.protocol.chunking import chunk_count, chunk_payload_bytes
from pulsar_spark.protocol.metadata_size import metadata_bytes

_MOST_BYTES, _NUMBERS = 4, 1024
"""Bytes that a character takes at most; and what numbers and the producer's name take, generously: so that only
metadata that may be too large is measured."""


def pieces_of(
    message: Outgoing, producer_name: str, settings: ProducerSettings, max_message_size: int
) -> list[bytes | memoryview | None]:
    """The payload as it is to be sent: whole, or in the slices that become chunks. :class:`MessageTooBig` where it may
    not be split, :class:`InvalidMessage` where the metadata alone fills a message (1.4)."""
    size = len(message.payload or b"")
    if not settings.chunking_enabled and size > max_message_size:
        raise MessageTooBig(
            f"a payload of {size} bytes is above the maximum of {max_message_size}: create the producer with "
            "chunking_enabled=True, or raise the policy max_message_size"
        )
    if not settings.chunking_enabled and _MOST_BYTES * _characters(message) + _NUMBERS < max_message_size:
        return [message.payload]
    room = chunk_payload_bytes(
        max_message_size, _metadata_bytes(message, producer_name), settings.chunk_max_message_size
    )
    if not settings.chunking_enabled or chunk_count(size, room) == 1:
        return [message.payload]
    view = memoryview(message.payload)
    return [view[at : at + room] for at in range(0, size, room)]


def _characters(message: Outgoing) -> int:
    texts = sum(len(name) + len(value) + 4 for name, value in message.properties or ())
    return texts + len(message.partition_key or "") + len(message.ordering_key or "")


def _metadata_bytes(message: Outgoing, producer_name: str) -> int:
    return metadata_bytes(
        producer_name,
        message.sequence_id,
        message.publish_ms,
        partition_key=message.partition_key,
        ordering_key=message.ordering_key,
        properties=message.properties or (),
        event_ms=message.event_ms,
        deliver_at_ms=message.deliver_at_ms,
    )


def chunks_of(message: Outgoing, uuid: str, pieces: list[bytes | memoryview | None]) -> list[Outgoing]:
    """The message's chunks; of a single piece the message itself."""
    if len(pieces) == 1:
        return [message]
    size = len(message.payload)
    return [
        message._replace(
            payload=piece,
            columns={
                **(message.columns or {}),
                "uuid": uuid,
                "chunk_id": chunk_id,
                "num_chunks_from_msg": len(pieces),
                "total_chunk_msg_size": size,
            },
        )
        for chunk_id, piece in enumerate(pieces)
    ]
