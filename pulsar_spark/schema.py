"""Schemas: how a message's value becomes bytes and back, with the names of ``pulsar.schema``.

Left out until topics keep a schema: compatibility checks and versions; Avro and Protobuf. A JSON schema takes any class
whose instances keep their fields in ``__dict__`` and whose constructor takes them by name: a dataclass, or a
:class:`Record`. What a field holds comes back as its annotation says, or, of a record, as its default is: nested
records and dataclasses, alone and in lists, tuples, sets and dicts, enumerations and bytes. Fields that the class does
not have are passed over, as Pulsar's clients do: a writer may be newer than its readers.
"""

import dataclasses
import enum
import inspect
import json
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping


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
        if type(obj) is not bytes:
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
        fields = _record_fields(type(self))
        if unknown := values.keys() - fields.keys():
            raise AttributeError(f"{type(self).__name__} has no field {sorted(unknown)}")
        self.__dict__.update({**fields, **values})

    def __eq__(self, other) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None


def _record_fields(cls: type) -> dict[str, object]:
    """Fields of a record and their defaults."""
    return {
        name: default
        for each in reversed(cls.__mro__)
        if issubclass(each, Record)
        for name, default in vars(each).items()
        if not name.startswith("_")
        and not callable(default)
        and not isinstance(default, (property, classmethod, staticmethod))
    }


class JsonSchema(Schema):
    """Records and dataclasses as JSON objects."""

    def __init__(self, record_class: type):
        super().__init__(record_class)

    def encode(self, obj) -> bytes:
        self._validate_object_type(obj)
        return json.dumps(self._plain(obj), default=self._plain).encode("utf-8")

    def decode(self, data: bytes):
        found = json.loads(data)
        if not isinstance(found, dict):
            raise TypeError(
                f"a payload of {len(data)} bytes is no JSON object: {type(self).__name__} makes a "
                f"{self._record_class.__name__} of one"
            )
        return _instance(self._record_class, found)

    @staticmethod
    def _plain(value):
        if isinstance(value, enum.Enum):
            return value.value
        if isinstance(value, bytes):
            return value.decode("utf-8")
        if dataclasses.is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, (set, frozenset)):
            return sorted(value)
        if hasattr(value, "__dict__"):
            return dict(value.__dict__)
        raise TypeError(f"{type(value).__name__} has no form in JSON")


def _instance(cls: type, found: dict) -> object:
    """An instance of a class from the fields that it has of those *found*."""
    hints = _hints(cls)
    if dataclasses.is_dataclass(cls):
        fields = {field.name: field.init for field in dataclasses.fields(cls)}
    elif issubclass(cls, Record):
        fields = dict.fromkeys(_record_fields(cls), True)
    else:
        parameters = inspect.signature(cls).parameters.values()
        takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
        fields = dict.fromkeys(found if takes_all else (parameter.name for parameter in parameters), True)
    values = {name: _value(hints.get(name), value) for name, value in found.items() if name in fields}
    made = cls(**{name: value for name, value in values.items() if fields[name]})
    for name, value in values.items():
        if not fields[name]:
            object.__setattr__(made, name, value)
    return made


def _hints(cls: type) -> dict[str, object]:
    """What the fields of a class are: as annotated; of a record without an annotation what its default is."""
    try:
        hints = typing.get_type_hints(cls)
    except (
        NameError,
        TypeError,
    ):  # annotations that name what cannot be found, as of a class made in a function, say nothing
        hints = {
            name: hint
            for each in reversed(cls.__mro__)
            for name, hint in vars(each).get("__annotations__", {}).items()
            if not isinstance(hint, str)
        }
    if issubclass(cls, Record):
        hints = {
            name: type(default) for name, default in _record_fields(cls).items() if _is_class_of_fields(type(default))
        } | hints
    return hints


def _is_class_of_fields(hint: object) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, Record))


def _value(hint: object, value: object) -> object:
    """What JSON gave, as the annotation says; as it is where that says nothing of it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _value(arguments[0], value)
    if origin in (typing.Union, types.UnionType):
        return _value(_arm(arguments, value), value)
    if isinstance(value, dict):
        if _is_class_of_fields(hint):
            return _instance(hint, value)
        if isinstance(origin, type) and issubclass(origin, Mapping) and arguments:
            return {_key(arguments[0], name): _value(arguments[1], each) for name, each in value.items()}
    elif isinstance(value, list):
        return _sequence(origin or hint, arguments, value)
    elif isinstance(hint, type) and value is not None:
        if issubclass(hint, enum.Enum):
            return hint(value)
        if hint is bytes and isinstance(value, str):
            return value.encode("utf-8")
    return value


def _sequence(kind: object, arguments: tuple, values: list) -> object:
    if not isinstance(kind, type) or not issubclass(
        kind, (list, tuple, set, frozenset, typing.get_origin(typing.Iterable))
    ):
        return values
    if kind is tuple and arguments and Ellipsis not in arguments:
        hints = [*arguments, *[None] * len(values)]
    else:
        hints = [arguments[0] if arguments else None] * len(values)
    made = [_value(hint, value) for hint, value in zip(hints, values, strict=False)]
    return kind(made) if kind in (tuple, set, frozenset) else made


def _key(hint: object, name: str) -> object:
    """A key, which JSON gave as a text."""
    if hint is int:
        return int(name)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return next((member for member in hint if str(member.value) == name), name)
    return name


def _arm(arms: tuple, value: object) -> object:
    """Which of several annotations a value is of: of the plain ones its own, of classes of fields the one with most of
    the fields it has."""
    if value is None or type(value) in arms:
        return None
    others = [arm for arm in arms if arm is not types.NoneType]
    if len(others) == 1:
        return others[0]
    if isinstance(value, dict):
        classes = [arm for arm in arms if _is_class_of_fields(arm)]
        if classes:
            return max(classes, key=lambda arm: len(value.keys() & _names(arm)) - len(_names(arm) - value.keys()))
        return next((arm for arm in arms if typing.get_origin(arm) is dict), None)
    if isinstance(value, list):
        return next((arm for arm in arms if typing.get_origin(arm) in (list, tuple, set, frozenset)), None)
    fitting = [
        arm
        for arm in arms
        if isinstance(arm, type) and issubclass(arm, enum.Enum) and any(member.value == value for member in arm)
    ]
    return fitting[0] if fitting else bytes if bytes in arms else None


def _names(cls: type) -> set[str]:
    return (
        {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set(_record_fields(cls))
    )
