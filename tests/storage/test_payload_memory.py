"""Large payloads are put together in memory that is used again, and never while somebody has what lies there."""

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.frames.reading.chunk_payloads import _in_halves
from pulsar_spark.frames.reading.payload_batches import in_pieces
from pulsar_spark.storage.chunks.chunks import PayloadMemory, _Placed

KIND = pa.struct({"payload": pa.string(), "payload_error": pa.string()})


def placed(memory, *pieces):
    payload = _Placed(memory, len(pieces))
    for piece in pieces:
        payload.add(piece)
    return payload.whole()


def test_memory_is_used_again_when_nobody_has_it():
    memory = PayloadMemory()
    first = placed(memory, b"abc", b"d")
    assert bytes(first) == b"abcd"
    second = placed(memory, b"xyz", b"w")
    assert (bytes(first), bytes(second)) == (b"abcd", b"xyzw")
    address = np.frombuffer(second, np.uint8).ctypes.data
    held = pa.py_buffer(second)
    del first, second
    assert np.frombuffer(placed(memory, b"12", b"34"), np.uint8).ctypes.data != address
    assert held.to_pybytes() == b"xyzw"
    of_third = memory.of(4).ctypes.data
    assert memory.of(3).ctypes.data == of_third


@pytest.mark.parametrize("pieces", [(b"",), (b"", b"ab", b""), (b"a", b"bcdefgh", b"ij"), (b"abc", b"", b"d")])
def test_pieces_of_any_size_are_put_together(pieces):
    """As large as the first one, but for the last, are those of an honest producer."""
    assert bytes(placed(PayloadMemory(), *pieces)) == b"".join(pieces)


def test_large_payloads_are_with_spark_before_the_next_is_made():
    """So each may lie where the one before it lay; small ones go together, and none has to be text."""
    memory, sizes = PayloadMemory(), [3 << 20, 3 << 20, 9 << 20, 0, 5, 9 << 20, 7]
    made = ((placed(memory, bytes([0x80 + at]) * size), None) for at, size in enumerate(sizes))
    found = []
    for array in in_pieces(made, KIND):
        assert array.type == KIND
        found.append([bytes(each) for each in array.field("payload").view(pa.binary()).to_pylist()])
        del array
    assert [[len(each) for each in some] for some in found] == [[3 << 20], [3 << 20], [9 << 20], [0, 5], [9 << 20], [7]]
    whole = [each for some in found for each in some]
    assert all(each == bytes([0x80 + at]) * size for at, (each, size) in enumerate(zip(whole, sizes, strict=True)))


def test_a_large_payload_is_handed_over_in_halves_where_it_lies():
    """Of several that go together the second half is empty, of none both halves are not there."""
    large, others = placed(PayloadMemory(), bytes([0x80]) * (5 << 20), b"\xff"), [b"", None, b"ab"]
    address = np.frombuffer(large, np.uint8).ctypes.data
    found = []
    for piece in in_pieces([(large, None), *((each, None if each else "why") for each in others), (b"", None)], KIND):
        halves = _in_halves(piece)
        begins, ends = (halves.field(at).view(pa.binary()) for at in range(2))
        assert halves.field(2).to_pylist() == piece.field(1).to_pylist() and ends.null_count == 0
        found += [None if begin is None else (begin, end) for begin, end in zip(begins.to_pylist(), ends.to_pylist())]
        if len(piece) == 1:
            middle = len(large) // 2
            assert [each.buffers()[2].address for each in (begins, ends)] == [address, address + middle]
            assert (len(begins[0].as_py()), len(ends[0].as_py())) == (middle, len(large) - middle)
    assert [each and b"".join(each) for each in found] == [bytes(large), *others, b""]
    assert found[1:] == [(b"", b""), None, (b"ab", b""), (b"", b"")]


@pytest.mark.parametrize("payload", [None, b"", b"x", b"abc"])
def test_what_is_alone_is_handed_over_whole(payload):
    (piece,) = in_pieces([(payload, None)], KIND)
    begin, end = (_in_halves(piece).field(at).view(pa.binary())[0].as_py() for at in range(2))
    assert (begin if begin is None else begin + end) == payload
