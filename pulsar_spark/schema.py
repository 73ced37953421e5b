"""Schemas: how a message's value becomes bytes and back, with the names of ``pulsar.schema``.

Left out until topics keep a schema: compatibility checks and versions; Avro and Protobuf. A JSON schema takes any class whose instances keep their
fields in ``__dict__`` and whose constructor takes them by name: a dataclass, or a :class:`Record`.
"""
import dataclasses
import enum
import json
from abc import ABC, abstractmethod


class Schema(ABC):
    """Encodes values of one class to bytes and decodes them."""

    def __init__(self, record_class: type):
        self._record_class = record_class

    @abstractmethod
    def encode(self, obj) -> bytes:
        """The payload of a message with this value; TypeError for a value of another class."""

    @abstractmethod
    def decode(self, data: bytes):
        """The value of a message with this payload."""

    def decode_message(self, message):
        """The value of *message*; None for a null value."""
        return None if message.has_null_value() else self.decode(message.data())

    def attach_client(self, client) -> None:  # noqa: B027 - schemas may override it, and need not
        """Part of the package's interface; nothing here needs the client."""

    def _validate_object_type(self, obj) -> None:
        if not isinstance(obj, self._record_class):
            raise TypeError(f"{type(self).__name__} takes {self._record_class.__name__}, not {type(obj).__name__}")

    def __str__(self) -> str:
        return type(self).__name__


class BytesSchema(Schema):
    """Bytes as they are."""

    def __init__(self):
        super().__init__(bytes)

    def encode(self, obj: bytes) -> bytes:
        self._validate_object_type(obj)
        return obj

    def decode(self, data: bytes) -> bytes:
        return data


class StringSchema(Schema):
    """Text as UTF-8."""

    def __init__(self):
        super().__init__(str)

    def encode(self, obj: str) -> bytes:
        self._validate_object_type(obj)
        return obj.encode("utf-8")

    def decode(self, data: bytes) -> str:
        return data.decode("utf-8")


class Record:
    """A plain record: class attributes are the fields and their defaults.

    >>> class Flight(Record):
    ...     tail_number = None
    ...     delay = 0
    >>> Flight(tail_number="N14228").__dict__
    {'tail_number': 'N14228', 'delay': 0}
    """

    def __init__(self, **values):
        fields = {name: default for cls in reversed(type(self).__mro__) if issubclass(cls, Record) for name, default in vars(cls).items()
                  if not name.startswith("_") and not callable(default) and not isinstance(default, (property, classmethod, staticmethod))}
        if unknown := values.keys() - fields.keys():
            raise AttributeError(f"{type(self).__name__} has no field {sorted(unknown)}")
        self.__dict__.update({**fields, **values})

    def __eq__(self, other) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None


class JsonSchema(Schema):
    """Records and dataclasses as JSON objects."""

    def __init__(self, record_class: type):
        super().__init__(record_class)

    def encode(self, obj) -> bytes:
        self._validate_object_type(obj)
        return json.dumps(self._plain(obj), default=self._plain).encode("utf-8")

    def decode(self, data: bytes):
        return self._record_class(**json.loads(data))

    @staticmethod
    def _plain(value):
        if isinstance(value, enum.Enum):
            return value.value
        if isinstance(value, bytes):
            return value.decode("utf-8")
        if dataclasses.is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if hasattr(value, "__dict__"):
            return dict(value.__dict__)
        raise TypeError(f"{type(value).__name__} has no form in JSON")
