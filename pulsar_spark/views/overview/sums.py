"""Subscriptions summed over the partitions of their topics."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from pulsar_spark.views.overview.values import ConsumerState, SubscriptionState, severity

_SUMMED = (
    "backlog delayed unacked delivered redelivered acknowledged dead waiting_letters letterless rate_in rate_out "
    "rate_redelivered rate_acknowledged rate_dead mark_delete_position read_position end_position"
).split()
_SUMMED_OF_CONSUMER = "permits unacked delivered redelivered rate_out rate_redelivered".split()


def summed(subscriptions: Iterable[SubscriptionState]) -> Iterator[SubscriptionState]:
    """Each subscription of a topic once; one of a topic without partitions as it is."""
    by_topic = defaultdict[tuple[str, str], list[SubscriptionState]](list)
    for state in subscriptions:
        if state.partition == -1:
            yield state
        else:
            by_topic[state.topic, state.subscription].append(state)
    yield from map(_sum, by_topic.values())


def _sum(parts: Sequence[SubscriptionState]) -> SubscriptionState:
    """Ages are those of the oldest; it is blocked for the reason of its worst blocked partition, if none is served."""
    consumers = defaultdict[str, list[ConsumerState]](list)
    for part in parts:
        for consumer in part.consumers:
            consumers[consumer.consumer_id].append(consumer)
    with_backlog = sorted((part for part in parts if part.backlog or part.error), key=severity)
    reasons = [part.blocked for part in with_backlog if part.backlog_no_delayed or part.error] or [
        part.blocked for part in with_backlog
    ]
    return parts[0]._replace(
        partition=None,
        subscription_type=next((part.subscription_type for part in parts if part.subscription_type), None),
        oldest_publish_time=min((part.oldest_publish_time for part in parts if part.oldest_publish_time), default=None),
        backlog_age_seconds=_oldest(part.backlog_age_seconds for part in parts),
        oldest_unacked_seconds=_oldest(part.oldest_unacked_seconds for part in parts),
        consumers=tuple(map(_sum_of_consumer, consumers.values())),
        blocked=reasons[0] if reasons and all(reasons) else None,
        error=next((part.error for part in parts if part.error), None),
        **{name: sum(getattr(part, name) for part in parts) for name in _SUMMED},
    )


def _sum_of_consumer(parts: Sequence[ConsumerState]) -> ConsumerState:
    is_active = [part.is_active for part in parts if part.is_active is not None]
    return parts[0]._replace(
        oldest_unacked_seconds=_oldest(part.oldest_unacked_seconds for part in parts),
        is_active=any(is_active) if is_active else None,
        is_blocked=any(part.is_blocked for part in parts),
        **{name: sum(getattr(part, name) for part in parts) for name in _SUMMED_OF_CONSUMER},
    )


def _oldest(ages: Iterable[float | None]) -> float | None:
    return max((age for age in ages if age is not None), default=None)
