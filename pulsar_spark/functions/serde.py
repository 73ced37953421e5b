"""``pulsar.functions.serde`` of scripts."""

from typing import Any

from pulsar_spark.errors import OperationNotSupported


class SerDe:
    """How a function's values become bytes and back; outside of functions that is a schema."""

    def serialize(self, input: Any) -> bytes:
        """The bytes of a value."""

    def deserialize(self, input_bytes: bytes) -> Any:
        """The value of bytes."""


class PickleSerDe(SerDe):
    """Values as pickles, which are refused: reading one runs whatever its writer put there."""

    def serialize(self, input: Any) -> bytes:
        raise _no_pickles()

    def deserialize(self, input_bytes: bytes) -> Any:
        raise _no_pickles()


class IdentitySerDe(SerDe):
    """Texts and numbers as text in UTF-8, bytes as they are. Bytes become the first of int, float, complex and str
    that reads them, or stay bytes."""

    def serialize(self, input: Any) -> bytes:
        """The bytes of a text, a number or bytes; TypeError for others."""
        if type(input) in _IDENTITY_TYPES:
            return str(input).encode()
        if type(input) is bytes:
            return input
        raise TypeError(f"IdentitySerDe cannot serialize {type(input).__name__}: give a text, a number or bytes")

    def deserialize(self, input_bytes: bytes) -> Any:
        for kind in _IDENTITY_TYPES:
            try:
                return kind(input_bytes.decode())
            except ValueError:
                continue
        return input_bytes


_IDENTITY_TYPES = (int, float, complex, str)


def _no_pickles() -> OperationNotSupported:
    return OperationNotSupported(
        "PickleSerDe: pickles are not read or written here: use a schema of pulsar_spark.schema, or a SerDe of your own"
    )
