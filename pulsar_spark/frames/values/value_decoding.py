"""Decode payloads in a Python worker, Avro by ``fastavro``, JSON by ``json``, texts: a value or an error for each."""

import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pulsar_spark.frames.values.json_readers import json_reader
from pulsar_spark.frames.values.value_readers import MARKS, avro_reader, marked
from pulsar_spark.frames.values.value_types import column_type, has_members, stored_type, without_logical_types
from pulsar_spark.protocol.schemas.avro_resolution import parse_definition
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
from pulsar_spark.schema.schema_avro import fastavro, parsed_writer

VALUE, VALUE_ERROR = "value", "value_error"
"""Columns with a message's value and the error; both are null for a null value."""
WRONG_JSON, WRONG_TEXT = "the payload is not JSON that fits the schema", "the payload is not UTF-8"
_Read = Callable[[bytes, int | None], Any]


class ValueDecoder:
    """Decodes payloads into values of the schema *info*, or errors; create it in the worker.

    *writers* are the schemas of the versions that wrote, which Avro needs."""

    def __init__(self, info: SchemaInfo, writers: Mapping[int, SchemaInfo]):
        form = info.schema_type()
        if form is SchemaType.STRING:
            self._read: _Read = _read_text
        else:
            self._read = _json_read(info) if form is SchemaType.JSON else _avro_read(info, writers)
        self._kind = pa.struct({VALUE: column_type(info), VALUE_ERROR: pa.string()})
        self._stored = stored_type(self._kind)

    def values(self, payloads: pa.Array, versions: pa.Array) -> pa.Array:
        pairs = zip(payloads.to_pylist(), versions.to_pylist(), strict=True)
        rows = [self._row(*pair) for pair in pairs]
        try:
            found = pa.array(rows, self._stored)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # Arrow does not say which value failed
            found = pa.array(map(self._checked, rows), self._stored)
        return found if self._stored == self._kind else found.view(self._kind)

    def _row(self, payload: bytes | None, version: int | None) -> dict[str, Any]:
        if payload is None:
            return {VALUE: None, VALUE_ERROR: None}
        try:
            return {VALUE: self._read(payload, version), VALUE_ERROR: None}
        except (ValueError, TypeError, KeyError, IndexError, EOFError, ArithmeticError, MemoryError) as failed:
            return {VALUE: None, VALUE_ERROR: f"{type(failed).__name__}: {str(failed)[:200]}"}

    def _checked(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            pa.array([row], self._stored)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as failed:
            return {VALUE: None, VALUE_ERROR: f"{type(failed).__name__}: {str(failed)[:200]}"}
        return row


def _read_text(payload: bytes, version: int | None) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise ValueError(WRONG_TEXT) from None


def _json_read(info: SchemaInfo) -> _Read:
    reader = json_reader(parse_definition(info.schema()))

    def read(payload: bytes, version: int | None) -> Any:
        try:
            found = json.loads(payload.decode(), parse_float=Decimal)
            if not isinstance(found, dict):
                raise ValueError("it is not an object")
            return reader(found)
        except (ValueError, RecursionError) as wrong:
            raise ValueError(f"{WRONG_JSON}: {wrong}") from None

    return read


def _avro_read(info: SchemaInfo, writers: Mapping[int, SchemaInfo]) -> _Read:
    kind = parse_definition(info.schema())
    is_marked = has_members(kind)
    if is_marked:
        fastavro().read.LOGICAL_READERS.update(MARKS)

    def plain(definition: str) -> Any:
        found = without_logical_types(definition)
        return marked(found) if is_marked else found

    definition = plain(info.schema())
    reader = fastavro().parse_schema(definition)
    theirs = {
        version: plain(each.schema()) for version, each in writers.items() if each.schema_type() is SchemaType.AVRO
    }
    parsed: dict[int | None, Any] = {
        version: parsed_writer(each, definition) for version, each in theirs.items() if each != definition
    }
    convert, library = avro_reader(kind, is_marked), fastavro().schemaless_reader

    def read(payload: bytes, version: int | None) -> Any:
        writer = parsed.get(version)
        resolved = (reader, None) if writer is None else (writer, reader)
        value = library(io.BytesIO(payload), *resolved, return_named_type=is_marked)
        return value if convert is None else convert(value)

    return read
