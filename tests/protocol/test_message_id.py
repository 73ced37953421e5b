"""Message ids. The literals of text and bytes were printed by the ``pulsar`` package 3.13.0."""

import numpy as np
import pytest

from pulsar_spark.errors import InvalidMessage
from pulsar_spark.protocol.topics.message_id import MessageId, parse_message_id

PULSAR_SAYS = [
    ((3, 5, 7, 2), "(5,7,3,2)", b"\x08\x05\x10\x07\x18\x03 \x02"),
    ((-1, 5, 7, 2), "(5,7,-1,2)", b"\x08\x05\x10\x07 \x02"),
    ((-1, 5, 7, -1), "(5,7,-1,-1)", b"\x08\x05\x10\x07"),
    ((0, 0, 0, 0), "(0,0,0,0)", b"\x08\x00\x10\x00\x18\x00 \x00"),
    (
        (-1, 2**40, -5, 3),
        "(1099511627776,-5,-1,3)",
        b"\x08\x80\x80\x80\x80\x80 \x10\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01 \x03",
    ),
    ((), "(-1,-1,-1,-1)", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
]


@pytest.mark.parametrize(("arguments", "text", "data"), PULSAR_SAYS)
def test_text_and_bytes_are_those_of_pulsar(arguments, text, data):
    message_id = MessageId(*arguments)
    assert str(message_id) == text
    assert message_id.serialize() == data
    assert MessageId.deserialize(data) == message_id
    assert str(MessageId.deserialize(data)) == text


def test_order_is_ledger_entry_batch_index():
    in_order = [
        MessageId.earliest,
        MessageId(0, 1, 0),
        MessageId(0, 1, 1),
        MessageId(0, 1, 1, 0),
        MessageId(0, 1, 1, 1),
        MessageId(0, 2, 0),
        MessageId.latest,
    ]
    assert sorted(reversed(in_order)) == in_order
    assert MessageId(1, 1, 1, 0) < MessageId(0, 1, 1, 1)


def test_an_id_equals_itself_only():
    assert MessageId(0, 1, 1) == MessageId(0, 1, 1)
    assert len({MessageId(0, 1, 1), MessageId(0, 1, 1), MessageId(1, 1, 1), MessageId(0, 1, 1, 0)}) == 3
    assert MessageId() != (-1, -1, -1, -1)
    with pytest.raises(TypeError):
        sorted([MessageId(), 1])


@pytest.mark.parametrize("name", ["partition", "ledger_id", "entry_id", "batch_index"])
@pytest.mark.parametrize("value", ["5", 1.5, None, b"5", 1 << 63, -(1 << 63) - 1])
def test_what_is_no_number_of_pulsar_s_makes_no_id(name, value):
    with pytest.raises(TypeError, match=f"argument {name}: a whole number"):
        MessageId(**{name: value})


def test_numbers_are_as_wide_as_pulsar_s():
    highest = MessageId((1 << 31) - 1, (1 << 63) - 1, (1 << 63) - 1, (1 << 31) - 1)
    assert MessageId.deserialize(highest.serialize()) == highest
    for arguments in ((1 << 31,), (0, 0, 0, 1 << 31)):
        with pytest.raises(TypeError, match="32 bits"):
            MessageId(*arguments)
    with pytest.raises(InvalidMessage, match="argument partition"):
        MessageId.deserialize(b"\x08\x01\x10\x01\x18\x80\x80\x80\x80\x08")


def test_numbers_of_a_frame_make_an_id():
    message_id = MessageId(*np.array([3, 5, 7, 2]))
    assert repr(message_id) == repr(MessageId(3, 5, 7, 2))
    assert message_id.serialize() == MessageId(3, 5, 7, 2).serialize()


def test_earliest_and_latest():
    assert str(MessageId.earliest) == "(-1,-1,-1,-1)"
    assert str(MessageId.latest) == "(9223372036854775807,9223372036854775807,-1,-1)"
    assert MessageId.deserialize(MessageId.latest.serialize()) == MessageId.latest


def test_the_topic_travels_along_and_is_no_part_of_equality():
    data = MessageId(0, 1, 2).serialize()
    assert MessageId.deserialize(data, topic="t").topic_name() == "t"
    assert MessageId.deserialize(data).topic_name() is None
    assert MessageId.deserialize(data, topic="t") == MessageId.deserialize(data)


def test_fields_of_newer_clients_are_skipped():
    """ack_set = 5 (packed or not), batch_size = 6, and types that the message does not have today."""
    more = (
        b"\x28\x07"
        + b"\x2a\x01\x07"
        + b"\x30\x0a"
        + b"\x42\x04\x08\x01\x10\x02"
        + b"\x41"
        + bytes(8)
        + b"\x4d"
        + bytes(4)
    )
    assert MessageId.deserialize(MessageId(0, 1, 2, 3).serialize() + more) == MessageId(0, 1, 2, 3)


def test_the_id_of_a_chunked_message_is_that_of_its_last_chunk_and_knows_the_first():
    """ChunkMessageIdImpl: bytes as its toByteArray writes them, text as its toString."""
    first, last = MessageId(3, 5, 7), MessageId(3, 6, 300)
    message_id = last.of_chunks(first)
    assert str(message_id) == "(5,7,3,-1);(6,300,3,-1)"
    assert message_id.serialize() == b"\x08\x06\x10\xac\x02\x18\x03" + b"\x3a\x06\x08\x05\x10\x07\x18\x03"
    for again in (MessageId.deserialize(message_id.serialize(), "t"), parse_message_id(str(message_id))):
        assert (again, again.first_chunk_message_id()) == (last, first)
        assert str(again) == str(message_id)
    assert repr(message_id) == f"{last!r}.of_chunks({first!r})"
    assert (message_id.of_topic("t").first_chunk_message_id(), last.first_chunk_message_id()) == (first, None)


def test_a_chunked_id_is_compared_and_hashed_by_its_last_chunk():
    first, last = MessageId(-1, 5, 7), MessageId(-1, 6, 0)
    message_id = last.of_chunks(first)
    assert message_id == last and hash(message_id) == hash(last)
    assert message_id == last.of_chunks(MessageId(-1, 4, 0))
    assert first < MessageId(-1, 5, 8) < message_id < MessageId(-1, 6, 1)


def test_first_chunks_that_are_none_are_refused_or_nested_no_deeper():
    own = MessageId(-1, 6, 0).serialize()
    with pytest.raises(InvalidMessage, match="lacks its ledger"):
        MessageId.deserialize(own + b"\x3a\x02\x08\x05")
    nested = own
    for _ in range(20):
        nested = own + b"\x3a" + bytes([len(nested)]) + nested
    found = MessageId.deserialize(nested)
    assert found.first_chunk_message_id().first_chunk_message_id() is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"abc",
        b"\x08\x01",
        b"\x08\x05\x10",
        b"\x08\x05\x10\x07\x3a\x09a",
        b"\x08" + b"\xff" * 11,
        b"\x00\x00",
        "(1,2,-1,-1)",
        None,
        7,
    ],
)
def test_bytes_that_are_no_id_are_refused(data):
    with pytest.raises(InvalidMessage, match="MessageId.serialize"):
        MessageId.deserialize(data)
