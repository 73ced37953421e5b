"""Splits a message's payload into chunks, if it is too large.

Rule: ProducerImpl.sendAsync (semantics 0.9, 1.2-1.5). Chunks share the uuid ``<producerName>-<sequenceId>``.
"""

from pulsar_spark.client.sending.producer_settings import ProducerSettings
from pulsar_spark.client.sending.publish_rows import Outgoing
from pulsar_spark.errors import MessageTooBig
from pulsar_spark.protocol.chunks.chunking import chunk_count, chunk_payload_bytes, metadata_bytes
from pulsar_spark.protocol.topics.message_id import MAX_LONG


def pieces_of(
    message: Outgoing, producer_name: str, settings: ProducerSettings, max_message_size: int
) -> list[bytes | memoryview | None]:
    """The payload, whole or in slices. :class:`MessageTooBig` if it may not be split, :class:`InvalidMessage` if the
    metadata alone fills a message (1.4)."""
    payload = message.payload or b""
    size = len(payload)
    if not settings.chunking_enabled:
        if size > max_message_size:
            raise MessageTooBig(
                f"a payload of {size} bytes is above the maximum of {max_message_size}: create the producer with "
                "chunking_enabled=True, or raise the policy max_message_size"
            )
        return [message.payload]
    room = chunk_payload_bytes(
        max_message_size, _metadata_bytes(message, producer_name), settings.chunk_max_message_size
    )
    if chunk_count(size, room) == 1:
        return [message.payload]
    view = memoryview(payload)
    return [view[at : at + room] for at in range(0, size, room)]


def _metadata_bytes(message: Outgoing, producer_name: str) -> int:
    texts = (producer_name, f"{producer_name}-{MAX_LONG}", message.partition_key, message.ordering_key)
    return metadata_bytes(
        [_bytes(text) for text in texts if text is not None],
        [(_bytes(name), _bytes(value)) for name, value in message.properties or ()],
    )


def _bytes(text: str) -> bytes:
    """UTF-8 bytes, for counting; half of a surrogate pair is refused later."""
    return text.encode("utf-8", "surrogatepass")


def chunks_of(message: Outgoing, uuid: str, pieces: list[bytes | memoryview | None]) -> list[Outgoing]:
    """The message's chunks, one per piece; for a single piece the message itself."""
    if len(pieces) == 1:
        return [message]
    size = len(message.payload or b"")
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
