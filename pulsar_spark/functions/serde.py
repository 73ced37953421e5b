"""``pulsar.functions.serde`` for scripts."""

from typing import Any

from pulsar_spark.client.compat import PickleSerDe as PickleSerDe
from pulsar_spark.client.compat import SerDe as SerDe


class IdentitySerDe(SerDe):
    """Texts and numbers as UTF-8 text, bytes unchanged. Reading returns the first of int, float, complex and str that
    parses, else the bytes."""

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
