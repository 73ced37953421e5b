"""AvroSchema: values in Avro's binary encoding, through ``fastavro``.

Unlike in ``pulsar.schema``, definitions that do not resolve are an error.
"""

import io
import json
from enum import Enum
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

from pulsar_spark.errors import IncompatibleSchema
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
from pulsar_spark.schema.record import Record
from pulsar_spark.schema.schema import Schema


class AvroSchema(Schema):
    """Avro's binary encoding of records of the class ``record_cls`` or, if that is None, of dicts that follow
    ``schema_definition``."""

    def __init__(self, record_cls: type[Record] | None, schema_definition: dict[str, Any] | None = None) -> None:
        fastavro()
        if record_cls is None and schema_definition is None:
            raise AssertionError("The param record_cls and schema_definition shouldn't be both None.")
        if record_cls is not None and not (isinstance(record_cls, type) and issubclass(record_cls, Record)):
            raise TypeError(f"AvroSchema takes a class of records, or None and a schema_definition, not {record_cls!r}")
        self._schema = schema_definition if record_cls is None else record_cls.schema()
        super().__init__(record_cls, SchemaType.AVRO, self._schema, "AVRO")
        self._writers: dict[SchemaInfo, Any] = {}

    @cached_property
    def _parsed(self) -> Any:
        return fastavro().parse_schema(self._schema)

    def encode(self, obj: Any) -> bytes:
        """The payload for the value *obj*. With a definition and no class, ValueError if *obj* is not a dict."""
        if self._record_cls is None and not isinstance(obj, dict):
            raise ValueError("If using the custom schema, the record data should be dict type.")
        self._validate_object_type(obj)
        buffer = io.BytesIO()
        fastavro().schemaless_writer(buffer, self._parsed, _plain(obj))
        return buffer.getvalue()

    def encode_dict(self, d: dict[str, Any]) -> dict[str, Any]:
        """The fields of the record *d* as ``fastavro`` takes them: dicts for records, names for members of
        enumerations."""
        return _plain(d)

    def decode(self, data: bytes) -> Any:
        return self._decoded(data, self._parsed)

    def decode_message(self, msg: Any) -> Any:
        """The value of *msg*, converted from its writer's schema; None for a null value."""
        if msg.has_null_value():
            return None
        info = None if self._client is None else self._client._writer_schema(msg)
        return self._decoded(msg.data(), self._parsed if info is None else self._writer(info))

    def _writer(self, info: SchemaInfo) -> Any:
        if info == self._schema_info:
            return self._parsed
        parsed = self._writers.get(info)
        if parsed is None:
            if info.schema_type() is not SchemaType.AVRO:
                raise IncompatibleSchema(
                    f"the message was written with a schema of type {info.schema_type().name}: read it with that one"
                )
            parsed = self._writers[info] = parsed_writer(json.loads(info.schema()), self._schema)
        return parsed

    def _decoded(self, data: bytes, writer: Any) -> Any:
        reader = None if writer is self._parsed else self._parsed
        value = fastavro().schemaless_reader(io.BytesIO(data), writer, reader)
        return value if self._record_cls is None else self._record_cls(**value)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Record):
        value = value.__dict__
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def parsed_writer(definition: Any, reader: Any) -> Any:
    """A writer's *definition*, parsed under the name of the *reader*'s record."""
    if isinstance(definition, dict) and isinstance(reader, dict) and "name" in reader:
        definition = definition | {"name": reader["name"]}
    return fastavro().parse_schema(definition)


def fastavro() -> ModuleType:
    """The library; ImportError with instructions if it is missing."""
    try:
        return import_module("fastavro")
    except ImportError as missing:
        raise ImportError(
            "Avro library support was not found: AvroSchema needs fastavro, which "
            "pip install 'pulsar_spark[avro]' brings"
        ) from missing
