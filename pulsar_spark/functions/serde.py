"""``pulsar.functions.serde`` of scripts."""

from typing import Any

from pulsar_spark.functions import NotServed


class SerDe(NotServed):
    """How a function's values become bytes and back; outside of functions that is a schema."""

    def serialize(self, input: Any) -> bytes:
        """The bytes of a value."""

    def deserialize(self, input_bytes: bytes) -> Any:
        """The value of bytes."""


class PickleSerDe(SerDe):
    """Values as pickles."""


class IdentitySerDe(SerDe):
    """Texts and numbers as they are."""
