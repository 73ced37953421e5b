"""JsonSchema: values as JSON objects.

What a record is, its definition says, which the topic keeps. Ours: any other class is taken too whose instances keep
their fields in ``__dict__`` and whose constructor takes them by name, such as a dataclass; of these a topic is told
nothing, as of bytes.
"""

import dataclasses
import enum
import json
from typing import Any

from pulsar_spark.protocol.schema_info import SchemaType
from pulsar_spark.schema.annotated import instance_of
from pulsar_spark.schema.record import Record
from pulsar_spark.schema.schema import Schema


class JsonSchema(Schema):
    """Records and dataclasses as JSON objects."""

    def __init__(self, record_cls: type) -> None:
        if not isinstance(record_cls, type):
            raise TypeError(f"JsonSchema takes a class, such as a Record, not {record_cls!r}")
        if issubclass(record_cls, Record):
            super().__init__(record_cls, SchemaType.JSON, record_cls.schema(), "JSON")
        else:
            super().__init__(record_cls, SchemaType.BYTES, None, "JSON")

    def encode(self, obj: Any) -> bytes:
        self._validate_object_type(obj)
        return json.dumps(_plain(obj), default=_plain, indent=True).encode("utf-8")

    def decode(self, data: bytes) -> Any:
        found = json.loads(data)
        if not isinstance(found, dict):
            raise TypeError(
                f"a payload of {len(data)} bytes is no JSON object: {type(self).__name__} makes a "
                f"{self._record_cls.__name__} of one"
            )
        return instance_of(self._record_cls, found)


def _plain(value: Any) -> Any:
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
    raise TypeError(f"{type(value).__name__} has no form in JSON")
