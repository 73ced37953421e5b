"""Brokers that die at a write."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pulsar_spark.broker.projections.letters import AppendTable as LetterTable
from tests.spark_engine import SparkEngine


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
        (LetterTable, "append_once") if table == "letters" else (getattr(engine.rounds, table), "append_fenced")
    )
    append = getattr(owner, name)

    def append_and_die(*arguments):
        if when == "after":
            append(*arguments)
        raise Crash

    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(owner, name, append_and_die)
        yield
