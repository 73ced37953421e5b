"""``pulsar.functions.function`` of scripts."""

from typing import Any

from pulsar_spark.functions.context import Context


class Function:
    """A function of messages."""

    def process(self, input: Any, context: Context) -> Any:
        """What becomes of a message."""
