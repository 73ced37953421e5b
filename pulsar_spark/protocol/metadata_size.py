"""How many bytes a message's metadata takes: what is left of the maximum message size is its payload's.

Rule: ProducerImpl takes ``msgMetadata.getSerializedSize()`` off the maximum before it splits (semantics 0.9, 1.4). It
is the size of Pulsar's protobuf message ``MessageMetadata``: each text takes its UTF-8 bytes, their number as a varint
and a tag of one byte (two from field 16 on); each number a tag and its varint. What is set behind this moment, the
chunk's own fields, is not counted; Pulsar's broker leaves 10 KiB of room for it.
"""

from collections.abc import Iterable


def varint_bytes(value: int) -> int:
    """Bytes of *value* as protobuf writes it; a negative one takes ten.

    >>> varint_bytes(0), varint_bytes(127), varint_bytes(128), varint_bytes(1 << 63), varint_bytes(-1)
    (1, 1, 2, 10, 10)
    """
    return 10 if value < 0 else max(1, -(-value.bit_length() // 7))


def metadata_bytes(
    producer_name: str,
    sequence_id: int,
    publish_ms: int,
    *,
    partition_key: str | None = None,
    ordering_key: str | None = None,
    properties: Iterable[tuple[str, str]] = (),
    event_ms: int | None = None,
    deliver_at_ms: int | None = None,
) -> int:
    """The size of the metadata of a message that says this.

    >>> metadata_bytes("p", 0, 0), metadata_bytes("p", 0, 0, partition_key="k" * 200, properties=[("a", "b")])
    (7, 218)
    """
    size = _text(producer_name) + 1 + varint_bytes(sequence_id) + 1 + varint_bytes(publish_ms)
    for name, value in properties:
        inner = _text(name) + _text(value)
        size += 1 + varint_bytes(inner) + inner
    if partition_key is not None:
        size += _text(partition_key)
    if ordering_key is not None:
        size += 1 + _text(ordering_key)
    if event_ms is not None:
        size += 1 + varint_bytes(event_ms)
    if deliver_at_ms is not None:
        size += 2 + varint_bytes(deliver_at_ms)
    return size


def _text(text: str) -> int:
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return 1 + varint_bytes(length) + length
