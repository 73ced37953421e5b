"""Pulsar Functions, by the names of the ``pulsar`` package, and nothing behind them: there is no process that would run
them.

They can be imported and derived from, so that a module which has functions beside producers and consumers is of use;
making one raises :class:`OperationNotSupported`. What a function does is done by a consumer, or by a DataFrame consumer
(``pulsar_spark.frames.consume``).
"""

from typing import Any

from pulsar_spark.errors import OperationNotSupported


class _NotServed:
    def __init__(self, *args: Any, **kwargs: Any):
        raise OperationNotSupported(
            f"{type(self).__name__}: Pulsar Functions are not run here: consume with a consumer, or with "
            "pulsar_spark.frames.consume as DataFrames"
        )


class Function(_NotServed):
    """A function of messages."""

    def process(self, input: Any, context: "Context") -> Any:
        """What becomes of a message."""


class Context(_NotServed):
    """What a function is told of its surroundings."""


class SerDe(_NotServed):
    """How a function's values become bytes and back; outside of functions that is a schema."""

    def serialize(self, input: Any) -> bytes:
        """The bytes of a value."""

    def deserialize(self, input_bytes: bytes) -> Any:
        """The value of bytes."""


class PickleSerDe(SerDe):
    """Values as pickles."""


class IdentitySerDe(SerDe):
    """Texts and numbers as they are."""
