"""Decide which letters a job sends where and in which commits.

A letter stays if another job has claimed it, if it was sent back often enough, if its origin is unknown, or if its
chunks make no message."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from pulsar_spark.errors import InvalidConfiguration, InvalidTopicName, shown
from pulsar_spark.protocol.redelivery.letters import DEAD_LETTER_SUFFIX, RETRY_SUFFIX, retry_letter_topic
from pulsar_spark.protocol.topics.topic_name import check_subscription, parse_topic_name
from pulsar_spark.storage.cursor_ledger.reprocessing import Claim

ORIGIN, SUBSCRIPTION, TOPIC = "origin", "subscription", "topic:"
TAKEN_BEFORE, LEFT_BY_GUARD, WITHOUT_ORIGIN = "taken_before", "left_by_guard", "without_origin"
UNREADABLE = "unreadable"
REASONS = (TAKEN_BEFORE, LEFT_BY_GUARD, WITHOUT_ORIGIN, UNREADABLE)


class Letter(NamedTuple):
    partition: int
    position: int
    message_id: str
    origin_topic: str | None
    subscription: str | None
    cause: str
    replays: int
    payload_error: str | None


class Plan(NamedTuple):
    """The letters to send, the counts of others by cause and reason, and the unreadable letters."""

    claims: list[Claim]
    left: dict[str, dict[str, int]]
    unreadable: list[Letter]


def checked_target(to: str) -> str:
    """*to* in its full form; :class:`InvalidConfiguration` for an unknown target.

    >>> checked_target("topic:repaired")
    'topic:persistent://public/default/repaired'
    """
    if isinstance(to, str) and to.startswith(TOPIC):
        return TOPIC + str(parse_topic_name(to.removeprefix(TOPIC)))
    if to not in (ORIGIN, SUBSCRIPTION):
        raise InvalidConfiguration(f"to {to!r}: give 'origin', 'subscription' or 'topic:<name>'")
    return to


def plan_letters(
    letters: Iterable[Letter],
    taken: set[str],
    *,
    topic: str,
    to: str,
    max_replays: int,
    limit: int | None,
    chunk_letters: int,
) -> Plan:
    """Claim at most *limit* *letters* of the dead letter topic *topic*, by partition and position; later ones are not
    counted."""
    claims: list[Claim] = []
    unreadable: list[Letter] = []
    left: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(REASONS, 0))
    numbers: dict[str, int] = defaultdict(int)
    for letter in sorted(letters):
        if limit is not None and len(claims) >= limit:
            break
        destination = _destination(letter, topic, to)
        reasons = {
            TAKEN_BEFORE: letter.message_id in taken,
            LEFT_BY_GUARD: letter.replays >= max_replays,
            WITHOUT_ORIGIN: destination is None,
            UNREADABLE: letter.payload_error is not None,
        }
        reason = next((name for name, is_so in reasons.items() if is_so), None)
        if destination is None or reason is not None:
            left[letter.cause][reason or WITHOUT_ORIGIN] += 1
            if reason == UNREADABLE:
                unreadable.append(letter)
            continue
        number = numbers[destination]
        numbers[destination] += 1
        claims.append(
            Claim(
                destination,
                number // chunk_letters,
                number,
                letter.message_id,
                letter.partition,
                letter.position,
                letter.subscription,
                letter.cause,
                letter.replays + 1,
            )
        )
    return Plan(claims, dict(left), unreadable)


def _destination(letter: Letter, topic: str, to: str) -> str | None:
    if to.startswith(TOPIC):
        return to.removeprefix(TOPIC)
    try:
        if letter.origin_topic is None:
            return None
        origin = parse_topic_name(letter.origin_topic)
        if to == ORIGIN:
            return str(origin)
        if letter.subscription is None:
            return None
        if topic.endswith(f"-{letter.subscription}{DEAD_LETTER_SUFFIX}"):
            return topic.removesuffix(DEAD_LETTER_SUFFIX) + RETRY_SUFFIX
        found = retry_letter_topic(str(origin.partitioned_topic), check_subscription(letter.subscription))
    except InvalidTopicName:
        return None
    try:
        return str(parse_topic_name(found))
    except InvalidTopicName as cannot_be:
        raise InvalidTopicName(
            f"subscription {shown(letter.subscription)}, on which letters died, cannot have a retry letter "
            f"topic: send them to {ORIGIN!r}, or to '{TOPIC}NAME' ({cannot_be})"
        ) from None
