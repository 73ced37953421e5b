"""Errors raised on purpose reach Spark's user as one line: without the stack of the Python worker."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from pulsar_spark.errors import PulsarSparkError

Method = TypeVar("Method", bound=Callable)
T = TypeVar("T")
_HIDDEN = "SPARK_HIDE_TRACEBACK"
"""Spark's workers leave the stack out of what they report if this variable is set. A worker that reports an error
ends."""


def in_one_line(method: Method) -> Method:
    """Decorate a method that Spark calls in a Python worker."""

    @functools.wraps(method)
    def call(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except PulsarSparkError:
            _hide_stack()
            raise

    return call  # type: ignore[return-value]


def each_in_one_line(values: Iterator[T]) -> Iterator[T]:
    """:func:`in_one_line` for the steps of an iterator."""
    try:
        yield from values
    except PulsarSparkError:
        _hide_stack()
        raise


def is_worker() -> bool:
    """Whether this process is one of Spark's Python workers, and not a program of the user's."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def _hide_stack() -> None:
    if is_worker():
        os.environ[_HIDDEN] = "true"
