"""The base class of schemas, and the schemas of bytes, text and JSON.

Ours: ``JsonSchema`` also accepts other classes, such as dataclasses. For these, as for bytes, the topic keeps no
schema.
"""

import dataclasses
import enum
import json
from abc import ABC, abstractmethod
from decimal import Decimal
from functools import cached_property
from typing import Any

from pulsar_spark.protocol.schemas.avro_resolution import AvroType, parse_definition
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
from pulsar_spark.schema.annotated import instance_of
from pulsar_spark.schema.json_values import from_json, has_logical_types, to_json
from pulsar_spark.schema.record import Record


class Schema(ABC):
    """Encodes values of the class ``record_cls`` as bytes and decodes them.

    A topic keeps its kind (``schema_type``), name (``schema_name``) and definition (``schema_definition``, which JSON
    can represent).
    """

    _client: Any = None

    def __init__(
        self, record_cls: type | None, schema_type: SchemaType, schema_definition: Any, schema_name: str
    ) -> None:
        self._record_cls = record_cls
        self._schema_info = SchemaInfo(schema_type, schema_name, json.dumps(schema_definition, indent=True))

    @abstractmethod
    def encode(self, obj: Any) -> bytes:
        """The payload for the value *obj*; TypeError for a value of another class."""

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """The value of a message with the payload *data*."""

    def decode_message(self, msg: Any) -> Any:
        """The value of *msg*; None for a null value."""
        return None if msg.has_null_value() else self.decode(msg.data())

    def schema_info(self) -> SchemaInfo:
        """Type, name and definition."""
        return self._schema_info

    def attach_client(self, client: Any) -> None:
        """Set the *client*, which knows the schemas of the topic's writers."""
        self._client = client

    def _validate_object_type(self, obj: Any) -> None:
        if self._record_cls is not None and not isinstance(obj, self._record_cls):
            raise TypeError(
                f"Invalid record obj of type {type(obj)} - expected type is {self._record_cls}: "
                f"{type(self).__name__} takes {self._record_cls.__name__}, not {type(obj).__name__}"
            )

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Schema):
            return NotImplemented
        return (self._record_cls, self._schema_info) == (other._record_cls, other._schema_info)

    def __hash__(self) -> int:
        return hash((type(self), self._record_cls, self._schema_info))

    def __str__(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        named = "" if self._record_cls in (None, bytes, str) else self._record_cls.__name__
        return f"{type(self).__name__}({named})"


class BytesSchema(Schema):
    """The payload itself is the value. Topics do not keep this schema."""

    def attach_client(self, client: Any) -> None:
        """Does nothing with *client*: one instance is the default of all clients."""

    def __init__(self) -> None:
        super().__init__(bytes, SchemaType.BYTES, None, "BYTES")

    def encode(self, data: bytes) -> bytes:  # the argument's name is the package's
        """Return *data* unchanged; TypeError if it is not bytes."""
        if type(data) is not bytes:
            self._validate_object_type(data)
        return data

    def decode(self, data: bytes) -> bytes:
        return data


class StringSchema(Schema):
    """Text, stored as UTF-8."""

    def __init__(self) -> None:
        super().__init__(str, SchemaType.STRING, None, "STRING")

    def encode(self, obj: str) -> bytes:
        self._validate_object_type(obj)
        return obj.encode("utf-8")

    def decode(self, data: bytes) -> str:
        return data.decode("utf-8")


class JsonSchema(Schema):
    """JSON objects for records and dataclasses of the class ``record_cls`` or, if that is None, for dicts that follow
    ``schema_definition``, which the package lacks."""

    def __init__(self, record_cls: type | None, schema_definition: dict[str, Any] | None = None) -> None:
        if not isinstance(record_cls, type) and (record_cls is not None or schema_definition is None):
            raise TypeError(f"JsonSchema needs a class, such as a Record, not {record_cls!r}")
        if record_cls is not None and not issubclass(record_cls, Record):
            super().__init__(record_cls, SchemaType.BYTES, None, "JSON")
        else:
            definition = schema_definition if record_cls is None else record_cls.schema()
            super().__init__(record_cls, SchemaType.JSON, definition, "JSON")

    @cached_property
    def _parsed(self) -> AvroType | None:
        """None if the topic keeps none."""
        return parse_definition(self._schema_info.schema()) if self._schema_info.is_kept else None

    @cached_property
    def _has_logical_types(self) -> bool:
        return self._parsed is not None and has_logical_types(self._parsed)

    def encode(self, obj: Any) -> bytes:
        """The payload for the value *obj*. With a definition and no class, ValueError if *obj* is not a dict."""
        if self._record_cls is None and not isinstance(obj, dict):
            raise ValueError("If using the custom schema, the record data should be dict type.")
        self._validate_object_type(obj)
        plain = to_json(obj, self._parsed) if self._parsed is not None and self._has_logical_types else _plain(obj)
        return json.dumps(plain, default=_plain, indent=True).encode("utf-8")

    def decode(self, data: bytes) -> Any:
        is_plain = not self._has_logical_types
        found = json.loads(data, parse_float=None if is_plain else Decimal)
        if not isinstance(found, dict):
            named = "dict" if self._record_cls is None else self._record_cls.__name__
            raise TypeError(
                f"a payload of {len(data)} bytes is not a JSON object: {type(self).__name__} makes a {named} of one"
            )
        if self._parsed is not None and (not is_plain or any(text in data for text in _NO_NUMBERS)):
            found = from_json(found, self._parsed, self._record_cls)
        return found if self._record_cls is None else instance_of(self._record_cls, found)


_NO_NUMBERS = (b'"NaN"', b'Infinity"')
"""Texts for numbers that JSON lacks."""


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "__dict__"):
        return dict(value.__dict__)
    raise TypeError(f"{type(value).__name__} cannot be represented in JSON")
