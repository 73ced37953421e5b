"""``pulsar.functions.context`` for scripts: what a function can read and do while it handles a message."""

from typing import Any


class Context:
    """The message that a function handles, the function's own settings, and side effects such as publishing."""

    # The message.

    def get_message_id(self) -> Any:
        """The id of the message."""

    def get_message_key(self) -> Any:
        """The key of the message."""

    def get_message_eventtime(self) -> Any:
        """The event time of the message."""

    def get_message_properties(self) -> Any:
        """The properties of the message."""

    def get_current_message_topic_name(self) -> Any:
        """The topic of the message."""

    def get_partition_key(self) -> Any:
        """The partition key of the message."""

    def get_ordering_key(self) -> Any:
        """The ordering key of the message."""

    def ack(self, msgid: Any, topic: str) -> None:
        """Acknowledge the message."""

    # The function.

    def get_function_tenant(self) -> Any:
        """The tenant of the function."""

    def get_function_namespace(self) -> Any:
        """The namespace of the function."""

    def get_function_name(self) -> Any:
        """The name of the function."""

    def get_function_id(self) -> Any:
        """The id of the function."""

    def get_function_version(self) -> Any:
        """The version of the function."""

    def get_instance_id(self) -> Any:
        """The id of this instance of the function."""

    def get_input_topics(self) -> Any:
        """The topics that the function reads."""

    def get_output_topic(self) -> Any:
        """The topic that the function writes."""

    def get_output_serde_class_name(self) -> Any:
        """The class that serializes the function's results."""

    def get_logger(self) -> Any:
        """The logger of the function."""

    def get_user_config_value(self, key: str) -> Any:
        """One value of the configuration."""

    def get_user_config_map(self) -> Any:
        """The configuration of the function."""

    def get_secret(self, secret_name: str) -> Any:
        """A secret of the function."""

    # What it may do.

    def record_metric(self, metric_name: str, metric_value: float) -> None:
        """Add to a metric."""

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
        """Store a value."""

    def get_state(self, key: str) -> Any:
        """A stored value."""
