"""Dead and retry letters: names of their topics, and their properties.

Rules: ConsumerImpl, ConsumerBuilderImpl, RetryMessageUtil; semantics 4.22-4.31 with 0.5 and 0.27. Unlike in Pulsar,
properties in :data:`SYSTEM_NAMES` are believed only in messages that the system wrote. Elsewhere, as in copies of
letters, they are dropped and the count starts at 1."""

from collections.abc import Mapping
from typing import NamedTuple

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.policies.policies import MOST_INT32
from pulsar_spark.protocol.request_properties import is_true, number_in

RETRY_SUFFIX, DEAD_LETTER_SUFFIX = "-RETRY", "-DLQ"
DEFAULT_MAX_REDELIVER_COUNT = 16

REAL_TOPIC, REAL_SUBSCRIPTION = "REAL_TOPIC", "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID, ORIGIN_MESSAGE_ID_LEGACY = "ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME"
RECONSUME_TIMES, DELAY_TIME = "RECONSUMETIMES", "DELAY_TIME"
CAUSE, ATTEMPTS = "DEAD_LETTER_CAUSE", "DEAD_LETTER_ATTEMPTS"
REPLAYS = "DEAD_LETTER_REPLAYS"
"""How often a message was sent back from a dead letter topic; kept through retries and in its next dead letter."""
BOOKKEEPING = (CAUSE, ATTEMPTS, RECONSUME_TIMES, DELAY_TIME)
"""Properties that a reprocessed message loses."""

UNKNOWN_CAUSE = "unknown"
"""The cause of a letter that gives none."""

SYSTEM_NAMES = frozenset(
    (REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID, ORIGIN_MESSAGE_ID_LEGACY, RECONSUME_TIMES, REPLAYS)
)
"""Properties of letters that only the system sets."""
REPROCESSED = "reprocess-"
"""Prefix of a job's name in its producer's name."""

CAUSE_REDELIVERED = "max_redeliver_count"
CAUSE_RECONSUMED = "max_reconsume_times"

RETRY_LETTER, DEAD_LETTER = "retry", "dead"
"""Kinds of letters in rows of a round."""

NAME_DEAD_LETTER_TOPIC = "Name one with the policy's dead_letter_topic, or use shorter names"
"""Advice for an invalid name of a dead letter topic."""

LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the end of Python's calendar."""

_OWN = "property."
"""Prefix of the letter's own properties in those of a request."""


def is_too_often(times, most):
    """Whether a message returned or put off *times* times is dead, with *most* allowed, 0 for no limit (4.26). Takes
    integers or columns.

    >>> is_too_often(3, 3), is_too_often(4, 3), is_too_often(4, 0)
    (False, True, False)
    """
    return (most > 0) & (times > most)


class ReconsumeLater(NamedTuple):
    """A ``reconsume_later`` request beside its entry: the letter with its final properties, and the batch index."""

    letter_topic: str
    properties: Mapping[str, str]
    is_dead: bool = False
    is_cumulative: bool = False
    batch_index: int | None = None
    deliver_at_ms: int | None = None
    producer_name: str | None = None
    initial_subscription_name: str | None = None

    def request_properties(self) -> dict[str, str]:
        """The properties of the request, which :func:`reconsume_later_of` parses.

        >>> ReconsumeLater("t-s-RETRY", {"colour": "red"}, batch_index=0).request_properties()
        {'letter_topic': 't-s-RETRY', 'batch_index': '0', 'property.colour': 'red'}
        """
        fields = {
            name: value
            for name, value in self._asdict().items()
            if name != "properties" and value is not None and value is not False
        }
        written = {name: "true" if value is True else str(value) for name, value in fields.items()}
        return {**written, **{_OWN + name: value for name, value in self.properties.items()}}


def reconsume_later_of(properties: Mapping[str, str]) -> ReconsumeLater:
    """Parse the properties of a request, ignoring unknown ones; :class:`InvalidConfiguration` for invalid ones."""
    if not properties.get("letter_topic"):
        raise InvalidConfiguration("reconsume_later: name the letter topic")
    own = {name.removeprefix(_OWN): value for name, value in properties.items() if name.startswith(_OWN)}
    return ReconsumeLater(
        properties["letter_topic"],
        own,
        is_true(properties, "is_dead"),
        is_true(properties, "is_cumulative"),
        _number(properties, "batch_index"),
        _number(properties, "deliver_at_ms"),
        properties.get("producer_name"),
        properties.get("initial_subscription_name"),
    )


def _number(properties: Mapping[str, str], name: str) -> int | None:
    if properties.get(name) is None:
        return None
    return number_in(properties, name, of="reconsume_later", least=0, most=LATEST_MS)


def letters_in(row: Mapping) -> int:
    """How many letters a row requests: one per message of its entries, or of its ack set.

    >>> letters_in({"first": 3, "last": 4, "batch_size": 5, "ack_set": None})
    10
    """
    batch_size = row["batch_size"] or 1
    each = batch_size if row["ack_set"] is None or batch_size == 1 else ack_sets.count(row["ack_set"])
    return (row["last"] - row["first"] + 1) * each


def dead_letter_topic(topic: str, subscription: str) -> str:
    """The default dead letter topic of a subscription; *topic* is the full name without a partition (0.5).

    >>> dead_letter_topic("persistent://public/default/orders", "billing")
    'persistent://public/default/orders-billing-DLQ'
    """
    return f"{topic}-{subscription}{DEAD_LETTER_SUFFIX}"


def dead_letters_to(policy: Mapping[str, str], topic: str, subscription: str) -> str:
    """The topic for a subscription's dead letters: that of its dead letter *policy*, else the default."""
    return policy.get("dead_letter_topic") or dead_letter_topic(topic, subscription)


def retry_letter_topic(topic: str, subscription: str) -> str:
    """The retry letter topic of a subscription."""
    return f"{topic}-{subscription}{RETRY_SUFFIX}"


def origin_properties(
    properties: Mapping[str, str], *, topic: str, subscription: str, message_id: str
) -> dict[str, str]:
    """*properties* with the origin added unless they name one (4.24)."""
    return {
        REAL_TOPIC: topic,
        REAL_SUBSCRIPTION: subscription,
        ORIGIN_MESSAGE_ID: message_id,
        ORIGIN_MESSAGE_ID_LEGACY: message_id,
        **properties,
    }


def is_letter(topic: str, producer_name: str, sequence_id: int) -> bool:
    """Whether the system wrote a message of *topic* (without a partition) as a letter, with a negative sequence id.

    >>> retries = "persistent://public/default/orders-s-RETRY"
    >>> by = "persistent://public/default/orders-s-consumer-RETRY"
    >>> is_letter(retries, by, -1), is_letter(retries, by, 0), is_letter(retries, "somebody", -1)
    (True, False, False)
    """
    return sequence_id < 0 and any(
        producer_name.endswith(suffix) and producer_name.startswith(f"{topic.removesuffix(suffix)}-")
        for suffix in (RETRY_SUFFIX, DEAD_LETTER_SUFFIX)
    )


def believed_properties(
    properties: Mapping[str, str], topic: str, producer_name: str | None, sequence_id: int | None, *, retry: str = ""
) -> dict[str, str]:
    """*properties* for the letter of a message: system names only from the system, and the count only from a retry
    letter topic (*retry*).

    >>> copied = {"colour": "red", "RECONSUMETIMES": "16", "REAL_TOPIC": "t"}
    >>> believed_properties(copied, "t", "somebody", 7)
    {'colour': 'red'}
    """
    named, number = producer_name or "", -1 if sequence_id is None else sequence_id
    is_of_system = is_letter(topic, named, number)
    hidden = set() if is_of_system or (named.startswith(REPROCESSED) and number >= 0) else set(SYSTEM_NAMES)
    if not (is_of_system and (topic == retry or topic.endswith(RETRY_SUFFIX))):
        hidden.add(RECONSUME_TIMES)
    return {name: value for name, value in properties.items() if name not in hidden}


def dead_letter_properties(
    properties: Mapping[str, str], *, topic: str, subscription: str, message_id: str, cause: str, attempts: int
) -> dict[str, str]:
    """Properties of a dead letter: the original's, its origin, its cause and its attempts (4.28, 0.27)."""
    letter = origin_properties(properties, topic=topic, subscription=subscription, message_id=message_id)
    letter[CAUSE], letter[ATTEMPTS] = cause, str(attempts)
    return letter


def reconsume_times(properties: Mapping[str, str]) -> int:
    """How often the message was put off before; 0 unless the counter is a Java int.

    >>> [reconsume_times({RECONSUME_TIMES: text}) for text in ("2", "\u00b2", "-1", "9" * 10, "9" * 5000)]
    [2, 0, 0, 0, 0]
    """
    text = properties.get(RECONSUME_TIMES, "")
    is_number = text.isdecimal() and len(text) <= len(str(MOST_INT32)) and int(text) <= MOST_INT32
    return int(text) if is_number else 0


def retry_letter_properties(
    properties: Mapping[str, str],
    *,
    topic: str,
    subscription: str,
    message_id: str,
    delay_ms: int,
    custom: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Properties of a retry letter (4.24), from *properties* that are believed. Custom ones take precedence, except the
    system's names.

    >>> delivery = dict(topic="t", subscription="s", message_id="(1,0,-1,-1)", delay_ms=5)
    >>> found = retry_letter_properties({"RECONSUMETIMES": "1"}, **delivery)
    >>> found["RECONSUMETIMES"], found["DELAY_TIME"], found["REAL_TOPIC"]
    ('2', '5', 't')
    """
    merged = {
        **origin_properties(properties, topic=topic, subscription=subscription, message_id=message_id),
        **{name: value for name, value in (custom or {}).items() if name not in SYSTEM_NAMES},
    }
    return {**merged, RECONSUME_TIMES: str(reconsume_times(merged) + 1), DELAY_TIME: str(max(delay_ms, 0))}
