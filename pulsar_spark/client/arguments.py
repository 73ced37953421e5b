"""Checks of arguments that public calls share, and their behaviour on Ctrl-C and in forked processes.

As in the ``pulsar`` package, a wrong argument is a ValueError that names it.
"""

import functools
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, TypeVar, cast

from pulsar_spark.errors import AlreadyClosed, Interrupted, InvalidConfiguration, InvalidTopicName
from pulsar_spark.link import interrupts
from pulsar_spark.storage.processes import forks

Method = TypeVar("Method", bound=Callable[..., Any])


def check_type(wanted: type | tuple[type, ...], value: object, name: str) -> None:
    """ValueError unless *value* is of the *wanted* type. Booleans are not numbers."""
    types = wanted if isinstance(wanted, tuple) else (wanted,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in types):
        names = " or ".join(cls.__name__ for cls in types)
        raise ValueError(f"argument {name}: {names} expected, not {given(value)}")


def given(value: object) -> str:
    """The type of *value* for an error; for objects of the ``pulsar`` package also what to change."""
    kind = type(value)
    if kind.__module__.partition(".")[0] not in ("pulsar", "_pulsar"):
        return kind.__name__
    return (
        f"{kind.__name__} of the pulsar package ({value}): write 'import pulsar_spark as pulsar' instead of "
        "'import pulsar', and "
        f"'from pulsar_spark import {kind.__name__}' instead of 'from pulsar import {kind.__name__}'"
    )


def check_type_or_none(wanted: type | tuple[type, ...], value: object, name: str) -> None:
    """ValueError unless *value* is None or of the *wanted* type."""
    if value is not None:
        check_type(wanted, value, name)


def checked_each(wanted: type, values: object, name: str) -> tuple:
    """Return *values* as a tuple, each of the *wanted* type; ValueError otherwise, also for a single text."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"argument {name}: several {wanted.__name__} expected, as a list, not {given(values)}")
    values = tuple(values)
    for value in values:
        check_type(wanted, value, name)
    return values


def check_given(check: Callable, *args: str) -> None:
    """Run *check* on an application's own name; invalid ones are :class:`InvalidConfiguration`."""
    try:
        check(*args)
    except InvalidTopicName as refused:
        raise InvalidConfiguration(str(refused)) from refused


def check_properties(properties: object) -> None:
    """ValueError unless *properties* is None or maps texts to texts."""
    if properties is None:
        return
    check_type(dict, properties, "properties")
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"argument properties: {name!r} = {value!r}: name and value must be texts")


def check_kept_properties(properties: object) -> None:
    """:func:`check_properties`, and the texts must be valid UTF-8."""
    check_properties(properties)
    for text in chain.from_iterable((properties or {}).items()):
        check_utf8(text, "properties")


def check_utf8(text: str, name: str) -> None:
    """ValueError for a *text* with half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as broken:
            raise ValueError(f"argument {name}: {text!r} cannot be encoded as UTF-8") from broken


def public_call(method: Method) -> Method:
    """Decorate a method: it works only in the process that opened its object, and Ctrl-C raises :class:`Interrupted`.

    The object keeps :data:`forks.generation` at creation as ``_process``.
    """

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
    """The error for Ctrl-C during a call of a *method* of *owner*."""
    return Interrupted(f"Ctrl-C was pressed during {type(owner).__name__}.{method}")


def check_count(name: str, count: object, least: int = 1) -> None:
    """:class:`InvalidConfiguration` unless *count* is an integer of at *least* so much."""
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise InvalidConfiguration(f"{name} {count!r}: give a number of at least {least}")
