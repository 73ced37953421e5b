"""``pulsar.functions.function`` for scripts."""

from typing import Any

from pulsar_spark.functions.context import Context


class Function:
    """A function that handles messages."""

    def process(self, input: Any, context: Context) -> Any:
        """Handle one message."""
