"""Pulsar Functions, by the names of the ``pulsar`` package, and nothing behind them: there is no process that would run
them.

They can be imported and derived from, so that a module which has functions beside producers and consumers is of use;
making one raises :class:`OperationNotSupported`. What a function does is done by a consumer, or by a DataFrame consumer
(``pulsar_spark.frames.consume``).
"""

from typing import Any

from pulsar_spark.errors import OperationNotSupported


class NotServed:
    """What cannot be made here; it says why."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise OperationNotSupported(
            f"{type(self).__name__}: Pulsar Functions are not run here: consume with a consumer, or with "
            "pulsar_spark.frames.consume as DataFrames"
        )
