"""Checks of arguments, and the behaviour of public calls on Ctrl-C and in forked processes.

A wrong argument is a ValueError that names it, as in the ``pulsar`` package.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args

from pulsar_spark.errors import AlreadyClosed, Interrupted, InvalidConfiguration, InvalidTopicName
from pulsar_spark.link import interrupts
from pulsar_spark.storage.processes import forks

Method = TypeVar("Method", bound=Callable[..., Any])
Value = TypeVar("Value")
Types = type | UnionType


def check_type(wanted: Types, value: object, name: str) -> None:
    """ValueError unless *value* is of a *wanted* type. Booleans are not numbers."""
    if isinstance(value, wanted) and not isinstance(value, bool):
        return
    types = get_args(wanted) or (wanted,)
    if not isinstance(value, bool) or bool not in types:
        names = " or ".join(cls.__name__ for cls in types if cls is not NoneType)
        raise ValueError(f"argument {name}: {names} expected, not {given(value)}")


def check_types(values: Mapping[str, object], **wanted: Types) -> None:
    """:func:`check_type` for each of the *values* that *wanted* names."""
    for name, types in wanted.items():
        check_type(types, values[name], name)


def check_not_negative(values: Mapping[str, object], *names: str) -> None:
    """ValueError unless the values of *names* are integers of at least 0."""
    for name in names:
        check_type(int, value := values[name], name)
        if isinstance(value, int) and value < 0:
            raise ValueError(f"argument {name}: {value} is below 0")


def given(value: object) -> str:
    """The type of *value* for an error message; for objects of the ``pulsar`` package also what to import."""
    kind = type(value)
    if kind.__module__.partition(".")[0] not in ("pulsar", "_pulsar"):
        return kind.__name__
    return (
        f"{kind.__name__} of the pulsar package ({value}): write 'import pulsar_spark as pulsar' instead of "
        "'import pulsar', and "
        f"'from pulsar_spark import {kind.__name__}' instead of 'from pulsar import {kind.__name__}'"
    )


def checked_each(wanted: type[Value], values: object, name: str) -> tuple[Value, ...]:
    """Return *values* as a tuple; ValueError for a single text, or a value not of the *wanted* type."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"argument {name}: several {wanted.__name__} expected, as a list, not {given(values)}")
    checked = tuple(values)
    for value in checked:
        check_type(wanted, value, name)
    return checked


def check_given(check: Callable, *args: str) -> None:
    """Run *check* on a name that the application chose; :class:`InvalidConfiguration` if it is invalid."""
    try:
        check(*args)
    except InvalidTopicName as refused:
        raise InvalidConfiguration(str(refused)) from refused


def check_properties(properties: Mapping | None) -> None:
    """ValueError unless *properties* is None or maps texts to texts."""
    check_type(dict | None, properties, "properties")
    for name, value in (properties or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"argument properties: {name!r} = {value!r}: name and value must be texts")


def check_kept_properties(properties: Mapping | None) -> None:
    """:func:`check_properties`, and valid UTF-8."""
    check_properties(properties)
    for pair in (properties or {}).items():
        for text in pair:
            check_utf8(text, "properties")


def check_utf8(text: str, name: str) -> None:
    """ValueError for a *text* with half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as broken:
            raise ValueError(f"argument {name}: {text!r} cannot be encoded as UTF-8") from broken


def public_call(method: Method) -> Method:
    """Decorate a method: it works only in the process that opened its object (``_process`` keeps
    :data:`forks.generation`), and Ctrl-C raises :class:`Interrupted`."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if self._process != forks.generation:
            forks.check_opened_here(self._process, type(self).__name__.lower())
        try:
            return method(self, *args, **kwargs)
        except Interrupted:
            raise
        except AlreadyClosed:
            interrupts.stay_to_the_end()
            raise
        except KeyboardInterrupt:
            raise interrupted(self, method.__name__.lstrip("_")) from None

    return cast(Method, call)


def interrupted(owner: object, method: str) -> Interrupted:
    return Interrupted(f"Ctrl-C was pressed during {type(owner).__name__}.{method}")


def check_count(name: str, count: object, least: int = 1) -> None:
    """:class:`InvalidConfiguration` unless *count* is an integer of at least *least*."""
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise InvalidConfiguration(f"{name} {count!r}: give a number of at least {least}")


def one_of(what: str, value: object, allowed: tuple[str, ...]) -> str:
    """The name of *value*, a text or an enumeration's member; :class:`InvalidConfiguration` if it is not *allowed*."""
    name = getattr(value, "name", value)
    if not isinstance(name, str) or name not in allowed:
        raise InvalidConfiguration(f"{what} {name!r} is unknown: give one of {', '.join(allowed)}")
    return name
