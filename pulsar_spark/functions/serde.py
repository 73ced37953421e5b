"""``pulsar.functions.serde`` for scripts."""

from typing import Any

from pulsar_spark.errors import OperationNotSupported


class SerDe:
    """Serializes the values of a function. Outside of functions a schema does that."""

    def serialize(self, input: Any) -> bytes:
        """Turn a value into bytes."""

    def deserialize(self, input_bytes: bytes) -> Any:
        """Turn bytes into a value."""


class PickleSerDe(SerDe):
    """Refused: reading a pickle runs whatever code its writer put into it."""

    def serialize(self, input: Any) -> bytes:
        raise _no_pickles()

    def deserialize(self, input_bytes: bytes) -> Any:
        raise _no_pickles()


class IdentitySerDe(SerDe):
    """Texts and numbers as UTF-8 text, bytes unchanged. Reading returns the first of int, float, complex and str that
    parses, else the bytes.
    """

    def serialize(self, input: Any) -> bytes:
        """Turn a text, a number or bytes into bytes; TypeError for other types."""
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
