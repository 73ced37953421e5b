"""Policies of a consumer, with the ``pulsar`` package's names.

``policy()`` returns the object itself, with the getters of the package's C++ objects.
"""

from collections.abc import Sequence
from operator import index
from typing import Any

from pulsar_spark.client.arguments import check_type, given
from pulsar_spark.client.model.enums import KeySharedMode
from pulsar_spark.protocol.keys.key_shared import AUTO_SPLIT, STICKY
from pulsar_spark.protocol.keys.sticky_key import DEFAULT_RANGE_SIZE


class ConsumerDeadLetterPolicy:
    """After how many redeliveries a message goes to a dead letter topic (``max_redeliver_count``), and to which
    (``dead_letter_topic``).

    Default names are Pulsar's. The subscription ``initial_subscription_name`` is created on the dead letter topic if
    missing. ``retry_letter_topic`` gets the copies of :meth:`Consumer.reconsume_later`.
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
        for name, text in (
            ("dead_letter_topic", dead_letter_topic),
            ("initial_subscription_name", initial_subscription_name),
            ("retry_letter_topic", retry_letter_topic),
        ):
            check_type(str | None, text, name)
        self.max_redeliver_count = max_redeliver_count
        self.retry_letter_topic = retry_letter_topic or ""
        self.dead_letter_topic = dead_letter_topic or ""
        self.initial_subscription_name = initial_subscription_name or ""

    def policy(self) -> "ConsumerDeadLetterPolicy":
        return self

    def getMaxRedeliverCount(self) -> int:
        """The number of redeliveries after which a message becomes a dead letter."""
        return self.max_redeliver_count

    def getDeadLetterTopic(self) -> str:
        """The dead letter topic; empty for the default."""
        return self.dead_letter_topic

    def getInitialSubscriptionName(self) -> str:
        """The subscription that is created on the dead letter topic; empty for none."""
        return self.initial_subscription_name

    def request_properties(self) -> dict[str, str]:
        return {
            "max_redeliver_count": str(self.max_redeliver_count),
            "dead_letter_topic": self.dead_letter_topic,
            "initial_subscription_name": self.initial_subscription_name,
        }


class DeadLetterPolicyBuilder:
    """Builds a dead letter policy; each method returns the builder."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {"max_redeliver_count": 2**31 - 1}

    def maxRedeliverCount(self, count: int) -> "DeadLetterPolicyBuilder":
        """Make a message a dead letter after *count* redeliveries."""
        return self._with("max_redeliver_count", count)

    def deadLetterTopic(self, topic: str) -> "DeadLetterPolicyBuilder":
        """Send dead letters to this *topic*."""
        return self._with("dead_letter_topic", topic)

    def initialSubscriptionName(self, name: str) -> "DeadLetterPolicyBuilder":
        """Create the subscription *name* on the dead letter topic if it is missing."""
        return self._with("initial_subscription_name", name)

    def _with(self, name: str, value: object) -> "DeadLetterPolicyBuilder":
        self._given[name] = value
        return self

    def build(self) -> ConsumerDeadLetterPolicy:
        """Return the policy; ValueError if the count is not above 0."""
        return ConsumerDeadLetterPolicy(**self._given)


class KeySharedPolicy:
    """How a Key_Shared consumer gets its hash ranges. Each ``set_`` method returns the policy."""

    key_shared_mode = KeySharedMode.AutoSplit
    allow_out_of_order_delivery = False
    sticky_ranges: Sequence[tuple[int, int]] = ()

    def get_key_shared_mode(self) -> KeySharedMode:
        """AutoSplit or Sticky."""
        return self.key_shared_mode

    def is_allow_out_of_order_delivery(self) -> bool:
        """Whether a new owner of a hash does not wait for the former owner."""
        return self.allow_out_of_order_delivery

    def get_sticky_ranges(self) -> list[tuple[int, int]]:
        """The hash ranges of a sticky consumer, as pairs of first and last hash."""
        return list(self.sticky_ranges)

    def set_key_shared_mode(self, mode: KeySharedMode) -> "KeySharedPolicy":
        """Set the *mode*: AutoSplit or Sticky."""
        if not isinstance(mode, KeySharedMode):
            raise TypeError(f"argument key_shared_mode: KeySharedMode expected, not {given(mode)}")
        self.key_shared_mode = mode
        return self

    def set_allow_out_of_order_delivery(self, is_allowed: bool) -> "KeySharedPolicy":
        """Set whether a new owner of a hash does not wait for the former owner (*is_allowed*)."""
        if not hasattr(type(is_allowed), "__bool__"):
            raise TypeError(f"argument allow_out_of_order_delivery: bool expected, not {given(is_allowed)}")
        self.allow_out_of_order_delivery = bool(is_allowed)
        return self

    def set_sticky_ranges(self, ranges: Sequence[tuple[int, int]]) -> "KeySharedPolicy":
        """Set the hash *ranges*, inclusive, from 0 to 65535. ValueError if there are none, or if one is outside or
        overlaps another."""
        self.sticky_ranges = _sticky_ranges(ranges)
        return self


class ConsumerKeySharedPolicy(KeySharedPolicy):
    """How a Key_Shared consumer gets its hash ranges: ``key_shared_mode`` is AutoSplit or Sticky.

    With ``allow_out_of_order_delivery`` a new owner of a hash does not wait for the former owner's acknowledgements.
    ``sticky_ranges`` are inclusive, from 0 to 65535, and must not overlap. The broker refuses reversed ranges and those
    of another consumer.
    """

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: list[tuple[int, int]] | None = None,
    ):
        if key_shared_mode == KeySharedMode.Sticky and sticky_ranges is None:
            raise ValueError("When using key_shared_mode = KeySharedMode.Sticky you must also provide sticky_ranges")
        self.set_key_shared_mode(key_shared_mode)
        self.set_allow_out_of_order_delivery(allow_out_of_order_delivery)
        self.sticky_ranges = [] if sticky_ranges is None else _sticky_ranges(sticky_ranges)

    def policy(self) -> "ConsumerKeySharedPolicy":
        return self

    def request_properties(self) -> dict[str, str]:
        return {
            "key_shared_mode": STICKY if self.key_shared_mode is KeySharedMode.Sticky else AUTO_SPLIT,
            "allow_out_of_order_delivery": str(self.allow_out_of_order_delivery).lower(),
            "hash_ranges": ",".join(f"{first}-{last}" for first, last in self.sticky_ranges),
        }


def _sticky_ranges(given_ranges: object) -> list[tuple[int, int]]:
    if not isinstance(given_ranges, (list, tuple, set, frozenset)):
        raise TypeError(f"argument sticky_ranges: list of pairs of int expected, not {given(given_ranges)}")
    ranges = [_pair(each) for each in given_ranges]
    if not ranges:
        raise ValueError("Ranges for KeyShared policy must not be empty: give at least one, such as (0, 65535)")
    for first, last in ranges:
        if first < 0 or last >= DEFAULT_RANGE_SIZE:
            raise ValueError(
                f"KeySharedPolicy Exception: Ranges must be [0, {DEFAULT_RANGE_SIZE - 1}]: ({first}, {last}) is not"
            )
    widest = (-1, -1)
    for first, last in sorted({pair for pair in ranges if pair[0] <= pair[1]}):
        if first <= widest[1]:
            raise ValueError(f"Ranges for KeyShared policy with overlap: {widest} and ({first}, {last})")
        widest = (first, last)
    return ranges


def _pair(value: Any) -> tuple[int, int]:
    try:
        first, last = map(index, value)
    except (TypeError, ValueError):
        raise TypeError(f"argument sticky_ranges: {value!r} is not a pair of int") from None
    return first, last


class BatchReceivePolicy:
    """When ``batch_receive`` returns: at ``max_num_message`` messages, at ``max_num_bytes`` bytes, or after
    ``timeout_ms``, whichever comes first. 0 or less means no such limit."""

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int):
        if max_num_message <= 0 and max_num_bytes <= 0 and timeout_ms <= 0:
            raise ValueError("a batch receive policy needs at least one limit above 0")
        self.max_num_message = max_num_message
        self.max_num_bytes = max_num_bytes
        self.timeout_ms = timeout_ms

    def getMaxNumMessages(self) -> int:
        """The number of messages at which ``batch_receive`` returns."""
        return self.max_num_message

    def getMaxNumBytes(self) -> int:
        """The number of bytes at which ``batch_receive`` returns."""
        return self.max_num_bytes

    def getTimeoutMs(self) -> int:
        """The milliseconds after which ``batch_receive`` returns."""
        return self.timeout_ms


class ConsumerBatchReceivePolicy(BatchReceivePolicy):
    """The policy to pass to ``subscribe``; its arguments are those of :class:`BatchReceivePolicy`."""

    def policy(self) -> BatchReceivePolicy:
        return self


DEFAULT_BATCH_RECEIVE = ConsumerBatchReceivePolicy(-1, 10 * 1024 * 1024, 100)
