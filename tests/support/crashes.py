"""Brokers, and others who write, that die at a write."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pulsar_spark.broker.letters.letters import AppendTable as LetterTable
from tests.support.spark_engine import SparkEngine


class Crash(BaseException):
    """The process is gone at this point."""


@contextmanager
def crash_at(engine: SparkEngine, table: str, when: str) -> Iterator[None]:
    """Make the next append to *table* (``ledgers``, ``cursor_ledger``, or ``letters`` for a letter topic) the last
    thing the broker does, or, where *when* is ``before``, the thing it does not come to; with ``never`` nothing
    happens."""
    if when == "never":
        yield
        return
    owner, name = (
        (LetterTable, "append_once") if table == "letters" else (getattr(engine.rounds.tables, table), "append_fenced")
    )
    append = getattr(owner, name)

    def append_and_die(*arguments):
        if when == "after":
            append(*arguments)
        raise Crash

    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(owner, name, append_and_die)
        yield


@contextmanager
def crash_at_write(number: int, *writes: tuple[Any, str]) -> Iterator[None]:
    """The process dies at the *number*-th call of the functions that write, each named by its owner and name, before
    it is done. Other threads that run already write on: they may be of earlier tests."""
    calls = [0]
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def wrap(function):
        def write(*arguments, **options):
            if threading.get_ident() not in others:
                calls[0] += 1
                if calls[0] == number:
                    raise Crash
            return function(*arguments, **options)

        return write

    with pytest.MonkeyPatch.context() as dying:
        for owner, name in writes:
            dying.setattr(owner, name, wrap(getattr(owner, name)))
        yield
