"""Large payloads are put together in memory that is used again, and never while somebody has what lies there."""

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.frames.payload_batches import in_pieces
from pulsar_spark.storage.chunks import PayloadMemory, _Placed

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
