"""Policy objects a consumer is given; shaped like those of the ``pulsar`` package.

Each says with ``request_properties`` what it adds to the subscribe request.
"""

from pulsar_spark.client.arguments import check_type, check_type_or_none
from pulsar_spark.client.enums import KeySharedMode
from pulsar_spark.protocol.key_shared import AUTO_SPLIT, STICKY


class ConsumerDeadLetterPolicy:
    """After how many redeliveries a message goes to a dead letter topic, and to which; names left out follow Pulsar's.

    ``retry_letter_topic`` is where :meth:`Consumer.reconsume_later` puts its copies.
    """

    def __init__(
        self,
        max_redeliver_count: int,
        dead_letter_topic: str | None = None,
        initial_subscription_name: str | None = None,
        retry_letter_topic: str | None = None,
    ):
        if isinstance(max_redeliver_count, bool) or not isinstance(max_redeliver_count, int) or max_redeliver_count < 1:
            raise ValueError(f"max_redeliver_count {max_redeliver_count!r}: give a number above 0")
        for name, given in (
            ("dead_letter_topic", dead_letter_topic),
            ("initial_subscription_name", initial_subscription_name),
            ("retry_letter_topic", retry_letter_topic),
        ):
            check_type_or_none(str, given, name)
        self.max_redeliver_count = max_redeliver_count
        self.retry_letter_topic = retry_letter_topic or ""
        self.dead_letter_topic = dead_letter_topic or ""
        self.initial_subscription_name = initial_subscription_name or ""

    def policy(self) -> "ConsumerDeadLetterPolicy":
        return self

    def request_properties(self) -> dict[str, str]:
        return {
            "max_redeliver_count": str(self.max_redeliver_count),
            "dead_letter_topic": self.dead_letter_topic,
            "initial_subscription_name": self.initial_subscription_name,
        }


class ConsumerKeySharedPolicy:
    """How a Key_Shared consumer takes part in splitting the hashes; sticky ranges are inclusive, within 0..65535."""

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: list[tuple[int, int]] | None = None,
    ):
        check_type(KeySharedMode, key_shared_mode, "key_shared_mode")
        if key_shared_mode is KeySharedMode.Sticky and sticky_ranges is None:
            raise ValueError("key_shared_mode Sticky needs sticky_ranges")
        self.key_shared_mode = key_shared_mode
        self.allow_out_of_order_delivery = allow_out_of_order_delivery
        self.sticky_ranges = list(sticky_ranges or [])

    def policy(self) -> "ConsumerKeySharedPolicy":
        return self

    def request_properties(self) -> dict[str, str]:
        return {
            "key_shared_mode": STICKY if self.key_shared_mode is KeySharedMode.Sticky else AUTO_SPLIT,
            "allow_out_of_order_delivery": str(self.allow_out_of_order_delivery).lower(),
            "hash_ranges": ",".join(f"{first}-{last}" for first, last in self.sticky_ranges),
        }


class ConsumerBatchReceivePolicy:
    """When ``batch_receive`` returns: at so many messages, bytes, or after so long, whichever comes first; at or below
    0 = no such limit."""

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int):
        if max_num_message <= 0 and max_num_bytes <= 0 and timeout_ms <= 0:
            raise ValueError("a batch receive policy needs at least one limit above 0")
        self.max_num_message = max_num_message
        self.max_num_bytes = max_num_bytes
        self.timeout_ms = timeout_ms

    def policy(self) -> "ConsumerBatchReceivePolicy":
        return self


DEFAULT_BATCH_RECEIVE = ConsumerBatchReceivePolicy(-1, 10 * 1024 * 1024, 100)
