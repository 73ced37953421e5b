"""The offsets of a stream with a subscription: which deliveries the last micro-batch of each topic has.

An offset names rounds, which never change, so a micro-batch has the same messages whenever it runs. It stands by
itself: the offset before it is not needed to read it."""

from collections.abc import Mapping
from typing import NamedTuple

from pulsar_spark.errors import InvalidConfiguration

_SUBSCRIPTION, _TOPICS = "subscription", "topics"


class TopicOffset(NamedTuple):
    """What was delivered to the consumer *consumer_id* after round *after* of *bundle*, up to *round*: so many
    *messages*."""

    topic_id: str
    bundle: str
    consumer_id: str
    after: int
    round: int
    messages: int


TopicOffsets = Mapping[str, TopicOffset]
"""By topic, given by its full name."""


def as_offset(subscription: str, offsets: TopicOffsets) -> dict:
    """The offset as Spark writes it into the checkpoint."""
    return {_SUBSCRIPTION: subscription, _TOPICS: {name: each._asdict() for name, each in offsets.items()}}


def parse_offset(offset: dict, subscription: str) -> dict[str, TopicOffset]:
    """What :func:`as_offset` wrote; :class:`InvalidConfiguration` if it was not for *subscription*."""
    try:
        theirs = offset[_SUBSCRIPTION]
        found = {name: TopicOffset(**each) for name, each in offset[_TOPICS].items()}
    except (KeyError, TypeError, AttributeError):
        raise InvalidConfiguration(
            f"the checkpoint has the offset {str(offset)[:200]!r}, which no stream with a subscription wrote: give a "
            "new checkpointLocation"
        ) from None
    if theirs != subscription:
        raise InvalidConfiguration(
            f"the checkpoint is of subscription {theirs!r}, not of {subscription!r}: give a new checkpointLocation, or "
            f"the option subscription with {theirs!r}"
        )
    return found


def check_topic(name: str, topic_id: str, offset: TopicOffset | None) -> None:
    """:class:`InvalidConfiguration` if *offset* is of another topic of that *name*."""
    if offset is not None and offset.topic_id != topic_id:
        raise InvalidConfiguration(
            f"the checkpoint is of another topic {name!r}: it was deleted and created again, or it is in another root; "
            "give a new checkpointLocation"
        )
