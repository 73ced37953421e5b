"""Shared by publishing and reading payloads in Spark: key readers in tasks, and arrays of limited size.

A frame's plan is shown and logged, so it never holds keys: only paths, or a function that makes a reader in each
task."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pulsar_spark.client.arguments import one_of
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.publishing.message_columns import REFUSED
from pulsar_spark.payloads.keys import CryptoKeyReader

_Member = TypeVar("_Member", bound=Enum)
KeyReader = CryptoKeyReader | Callable[[], CryptoKeyReader]
_BATCH_BYTES = 4 << 20
"""About the bytes of the arrays in which a column goes back to Spark; a larger payload is alone. Decompressed payloads
may be large, and Spark works on while the next array is made."""


def key_reader_of(given: KeyReader | None) -> Callable[[], CryptoKeyReader] | None:
    """A function that makes the key reader in a task; :class:`InvalidConfiguration` for a reader that would carry keys
    there."""
    if given is None:
        return None
    if type(given) is CryptoKeyReader:
        return partial(CryptoKeyReader, given.public_key_path, given.private_key_path)
    if isinstance(given, CryptoKeyReader) or not callable(given):
        raise InvalidConfiguration(
            f"crypto_key_reader is a {type(given).__name__}: give a CryptoKeyReader of two paths, or a "
            "function without arguments that creates your own on each worker, so that no key is in the plan"
        )
    return given


def make_key_reader(key_reader: Callable[[], CryptoKeyReader] | None) -> CryptoKeyReader | None:
    """The key reader in a task; the job fails if the function made something else."""
    if key_reader is None:
        return None
    reader = key_reader()
    if not isinstance(reader, CryptoKeyReader):
        wrong = f"crypto_key_reader made a {type(reader).__name__}: let it make a CryptoKeyReader"
        raise InvalidConfiguration(f"{REFUSED}InvalidConfiguration: {wrong}")
    return reader


def failure_action(given: object, kind: type[_Member]) -> _Member:
    return kind[one_of("crypto_failure_action", given, tuple(kind.__members__))]


def values_of(column: pa.Array) -> Sequence:
    return [None] * len(column) if column.null_count == len(column) else column.to_pylist()


def in_pieces(rows: Iterable[tuple], kind: pa.StructType) -> Iterator[pa.StructArray]:
    """Rows, whose first value is the payload, as arrays of limited size. Text is not validated."""
    piece: list[tuple] = []
    size = 0
    for row in rows:
        of_payload = len(row[0] or b"")
        if piece and size + of_payload > _BATCH_BYTES:
            yield _struct(piece, kind)
            piece, size = [], 0
        piece.append(row)
        size += of_payload
        if size > _BATCH_BYTES:
            yield _struct(piece, kind)
            piece, size = [], 0
    if piece:
        yield _struct(piece, kind)


def _struct(rows: list[tuple], kind: pa.StructType) -> pa.StructArray:
    payloads, *others = zip(*rows)
    if len(rows) > 1:  # Arrow keeps a memoryview alive if it is one of several values
        payloads = tuple(bytes(each) if isinstance(each, memoryview) else each for each in payloads)
    stored, *fields = kind
    columns = [_array(payloads, pa.binary()).view(stored.type)]
    columns += [_array(values, field.type) for values, field in zip(others, fields, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _array(values: tuple, kind: pa.DataType) -> pa.Array:
    """*values* as an array; shared nested values are converted once, a single payload is not copied."""
    if kind == pa.binary() and len(values) == 1 and values[0]:
        ends = pa.py_buffer(np.array([0, len(values[0])], np.int32))
        return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(values[0])])
    if not pa.types.is_nested(kind):
        return pa.array(values, kind)
    places = {id(value): value for value in values}
    known = {key: at for at, key in enumerate(places)}
    return pa.array(list(places.values()), kind).take(pa.array([known[id(value)] for value in values]))
