"""Dead and retry letters: their topics' names and what they say of the message they carry.

Rules: ConsumerImpl, ConsumerBuilderImpl, RetryMessageUtil; semantics 4.22-4.31 with 0.5 and 0.27: a letter keeps key, ordering key, properties and event time of the
original, and says where it came from, why it is here and after how many attempts. Properties that name the origin are set only where absent, so that
they name the first one.
"""
from collections.abc import Mapping

RETRY_SUFFIX, DEAD_LETTER_SUFFIX = "-RETRY", "-DLQ"
DEFAULT_MAX_REDELIVER_COUNT = 16

REAL_TOPIC, REAL_SUBSCRIPTION = "REAL_TOPIC", "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID, ORIGIN_MESSAGE_ID_LEGACY = "ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME"
RECONSUME_TIMES, DELAY_TIME = "RECONSUMETIMES", "DELAY_TIME"
CAUSE, ATTEMPTS = "DEAD_LETTER_CAUSE", "DEAD_LETTER_ATTEMPTS"
REPLAYS = "DEAD_LETTER_REPLAYS"
"""How often a message was sent back out of a dead letter topic; it stays with the message, through retries and into its next dead letter."""
BOOKKEEPING = (CAUSE, ATTEMPTS, RECONSUME_TIMES, DELAY_TIME)
"""What a letter says of its own way here. A message sent back starts without it; the properties that name the first origin stay."""

CAUSE_REDELIVERED = "max_redeliver_count"
CAUSE_RECONSUMED = "max_reconsume_times"


def dead_letter_topic(topic: str, subscription: str) -> str:
    """Name of the dead letter topic of a subscription; *topic* is the full name without a partition (0.5).

    >>> dead_letter_topic("persistent://public/default/orders", "billing")
    'persistent://public/default/orders-billing-DLQ'
    """
    return f"{topic}-{subscription}{DEAD_LETTER_SUFFIX}"


def retry_letter_topic(topic: str, subscription: str) -> str:
    """Name of the retry letter topic of a subscription.

    >>> retry_letter_topic("persistent://public/default/orders", "billing")
    'persistent://public/default/orders-billing-RETRY'
    """
    return f"{topic}-{subscription}{RETRY_SUFFIX}"


def origin_properties(properties: Mapping[str, str], *, topic: str, subscription: str, message_id: str) -> dict[str, str]:
    """*properties* with the origin added where it is not named yet (4.24)."""
    return {REAL_TOPIC: topic, REAL_SUBSCRIPTION: subscription, ORIGIN_MESSAGE_ID: message_id, ORIGIN_MESSAGE_ID_LEGACY: message_id, **properties}


def dead_letter_properties(properties: Mapping[str, str], *, topic: str, subscription: str, message_id: str, cause: str, attempts: int) -> dict[str, str]:
    """Properties of a dead letter: the original's, its origin, and what happened to it (4.28, 0.27)."""
    return {**origin_properties(properties, topic=topic, subscription=subscription, message_id=message_id), CAUSE: cause, ATTEMPTS: str(attempts)}


def reconsume_times(properties: Mapping[str, str]) -> int:
    """How often the message was put off before (0 for a message that never was, or whose counter is no number)."""
    text = properties.get(RECONSUME_TIMES, "")
    return int(text) if text.isdigit() else 0


def retry_letter_properties(properties: Mapping[str, str], *, topic: str, subscription: str, message_id: str, delay_ms: int,
                            custom: Mapping[str, str] | None = None) -> dict[str, str]:
    """Properties of the copy that goes to the retry letter topic (4.24): custom ones may name another origin and seed the counter, not set it.

    >>> found = retry_letter_properties({"RECONSUMETIMES": "1"}, topic="t", subscription="s", message_id="(1,0,-1,-1)", delay_ms=5)
    >>> found["RECONSUMETIMES"], found["DELAY_TIME"], found["REAL_TOPIC"]
    ('2', '5', 't')
    """
    merged = {**origin_properties(properties, topic=topic, subscription=subscription, message_id=message_id), **(custom or {})}
    return {**merged, RECONSUME_TIMES: str(reconsume_times(merged) + 1), DELAY_TIME: str(max(delay_ms, 0))}
