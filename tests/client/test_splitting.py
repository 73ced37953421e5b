"""How a producer cuts payloads, against golden m2 and the pure rule (semantics 0.9, 1.2-1.4)."""

from random import Random
from types import SimpleNamespace

import pytest

from pulsar_spark.client.sending.publish_rows import Outgoing
from pulsar_spark.client.sending.splitting import chunks_of, pieces_of
from pulsar_spark.errors import InvalidMessage
from pulsar_spark.protocol.chunks.chunking import chunk_count, chunk_payload_bytes, metadata_bytes
from tests.protocol.golden import cases

LARGE = 1 << 30


def outgoing(payload: bytes | None, key: str | None = None, properties=None) -> Outgoing:
    return Outgoing(payload, key, None, properties, None, None, 0, 7, 0.0, None)


def settings(chunk_max_message_size: int) -> SimpleNamespace:
    return SimpleNamespace(chunking_enabled=True, chunk_max_message_size=chunk_max_message_size)


@pytest.mark.parametrize("case", cases("m2_chunk_count"), ids=lambda case: "-".join(map(str, case["input"].values())))
def test_a_producer_makes_as_many_chunks_as_pulsar(case):
    payload_bytes, size = case["input"]["payload_bytes"], case["input"]["chunk_payload_bytes"]
    message = outgoing(bytes(payload_bytes))
    pieces = pieces_of(message, "p", settings(size), LARGE)
    assert {"total_chunks": len(pieces)} == case["expected"] and len(chunks_of(message, "p-7", pieces)) == len(pieces)


@pytest.mark.parametrize("seed", range(50))
def test_pieces_are_those_of_the_rule(seed):
    dice = Random(seed)
    payload = dice.randbytes(dice.choice([0, 1, dice.randrange(400), dice.randrange(4000)]))
    key = dice.choice([None, "", "k", "schlüssel" * dice.randrange(9)])
    properties = dice.choice([None, [], [("of", "ä" * dice.randrange(40)), ("", "")]])
    metadata = metadata_bytes(
        [b"p", f"p-{2**63 - 1}".encode(), None if key is None else key.encode()],
        [(name.encode(), value.encode()) for name, value in properties or ()],
    )
    most, limit = (
        metadata + dice.choice([-1, 0, 1, 2, dice.randrange(600)]),
        dice.choice([-1, 0, 1, dice.randrange(900)]),
    )
    message = outgoing(payload, key, properties)
    if most <= metadata:
        with pytest.raises(InvalidMessage, match=f"the metadata alone takes {metadata} of the {most} bytes"):
            pieces_of(message, "p", settings(limit), most)
        return
    room = chunk_payload_bytes(most, metadata, limit)
    pieces = pieces_of(message, "p", settings(limit), most)
    assert b"".join(pieces) == payload and len(pieces) == chunk_count(len(payload), room)
    assert all(len(piece) == room for piece in pieces[:-1]) and len(pieces[-1]) <= room
    chunks = chunks_of(message, "p-7", pieces)
    said = [{"uuid": "p-7", "chunk_id": at, "num_chunks_from_msg": len(pieces), "total_chunk_msg_size": len(payload)}
            for at in range(len(pieces))]  # fmt: skip
    assert [chunk.columns for chunk in chunks] == (said if len(pieces) > 1 else [None])
    assert {chunk._replace(payload=None, columns=None, properties=None) for chunk in chunks} == {
        message._replace(payload=None, properties=None)
    }
