"""Makes values of annotated classes, such as dataclasses, from JSON. Unknown fields are ignored: a writer may be
newer."""

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Iterable, Mapping

from pulsar_spark.schema.record import Record


def instance_of(cls: type, found: dict) -> object:
    """An instance of *cls* from the fields *found*."""
    if issubclass(cls, Record):
        return cls(**found)
    hints = _hints(cls)
    if dataclasses.is_dataclass(cls):
        fields = {field.name: field.init for field in dataclasses.fields(cls)}
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
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, TypeError):  # ignore annotations with unknown names, as of a class made in a function
        hints = {
            name: hint
            for each in reversed(cls.__mro__)
            for name, hint in vars(each).get("__annotations__", {}).items()
            if not isinstance(hint, str)
        }
    return hints


def _is_class_of_fields(hint: object) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, Record))


def _value(hint: object, value: object) -> object:
    """A JSON value converted by its annotation, if possible."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _value(arguments[0], value)
    if origin in (typing.Union, types.UnionType):
        return _value(_arm(arguments, value), value)
    if isinstance(value, dict):
        if isinstance(hint, type) and _is_class_of_fields(hint):
            return instance_of(hint, value)
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
    if not isinstance(kind, type) or not issubclass(kind, (list, tuple, set, frozenset, Iterable)):
        return values
    if kind is tuple and arguments and Ellipsis not in arguments:
        hints = [*arguments, *[None] * len(values)]
    else:
        hints = [arguments[0] if arguments else None] * len(values)
    made = [_value(hint, value) for hint, value in zip(hints, values, strict=False)]
    return kind(made) if kind in (tuple, set, frozenset) else made


def _key(hint: object, name: str) -> object:
    if hint is int:
        return int(name)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return next((member for member in hint if str(member.value) == name), name)
    return name


def _arm(arms: tuple, value: object) -> object:
    """The annotation that fits a value; for dicts the class with most of their fields."""
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


def _names(cls: typing.Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {*cls._fields}
