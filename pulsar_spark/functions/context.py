"""``pulsar.functions.context`` of scripts: what a function is told, and may ask for, while it handles a message."""

from typing import Any


class Context:
    """What a function knows of its message and of itself, and what it may do beside its result."""

    # The message.

    def get_message_id(self) -> Any:
        """Its id."""

    def get_message_key(self) -> Any:
        """Its key."""

    def get_message_eventtime(self) -> Any:
        """When what it says happened."""

    def get_message_properties(self) -> Any:
        """Its properties."""

    def get_current_message_topic_name(self) -> Any:
        """Its topic."""

    def get_partition_key(self) -> Any:
        """The key it was routed by."""

    def get_ordering_key(self) -> Any:
        """The key it is ordered by."""

    def ack(self, msgid: Any, topic: str) -> None:
        """Acknowledge it."""

    # The function.

    def get_function_tenant(self) -> Any:
        """The tenant it runs for."""

    def get_function_namespace(self) -> Any:
        """The namespace it runs in."""

    def get_function_name(self) -> Any:
        """Its name."""

    def get_function_id(self) -> Any:
        """Its id."""

    def get_function_version(self) -> Any:
        """Its version."""

    def get_instance_id(self) -> Any:
        """Which of its instances this is."""

    def get_input_topics(self) -> Any:
        """The topics it reads."""

    def get_output_topic(self) -> Any:
        """The topic it writes."""

    def get_output_serde_class_name(self) -> Any:
        """How its results become bytes."""

    def get_logger(self) -> Any:
        """Where it logs."""

    def get_user_config_value(self, key: str) -> Any:
        """A value of its configuration."""

    def get_user_config_map(self) -> Any:
        """Its configuration."""

    def get_secret(self, secret_name: str) -> Any:
        """A secret it was given."""

    # What it may do.

    def record_metric(self, metric_name: str, metric_value: float) -> None:
        """Count something."""

    def publish(
        self,
        topic_name: str,
        message: Any,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: dict[str, str] | None = None,
        compression_type: Any = None,
        callback: Any = None,
        message_conf: dict[str, Any] | None = None,
    ) -> None:
        """Publish to another topic."""

    # What it keeps.

    def incr_counter(self, key: str, amount: int) -> None:
        """Add to a counter."""

    def get_counter(self, key: str) -> Any:
        """A counter's value."""

    def del_counter(self, key: str) -> None:
        """Remove a counter."""

    def put_state(self, key: str, value: Any) -> None:
        """Keep a value."""

    def get_state(self, key: str) -> Any:
        """A value that was kept."""
