"""Find the dead letter topic of a topic and subscription, and whether it exists yet."""

from pulsar_spark.errors import SubscriptionNotFound, TopicNotFound
from pulsar_spark.protocol.redelivery.letters import DEAD_LETTER_SUFFIX, dead_letter_topic
from pulsar_spark.protocol.suggestions import close_names, did_you_mean
from pulsar_spark.protocol.topics.topic_name import TopicName, check_subscription, parse_topic_name
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of, layouts_of
from pulsar_spark.storage.topics.topics import Topic, list_topics, read_topic, resolve_topic

_MOST_NAMED = 10


def letter_topic_name(topic: str, subscription: str | None) -> TopicName:
    """The dead letter topic of *topic* and *subscription*, or *topic* itself without one."""
    name = parse_topic_name(topic)
    if subscription is None:
        return name
    return parse_topic_name(dead_letter_topic(str(name), check_subscription(subscription)))


def letter_topic(layout: Layout, topic: str, subscription: str | None) -> Topic | None:
    """The dead letter topic; None before its first letter.

    :class:`TopicNotFound` if nothing sends there, :class:`SubscriptionNotFound` if only other subscriptions do.
    """
    name = letter_topic_name(topic, subscription)
    try:
        return read_topic(layout, name)
    except TopicNotFound:
        if subscription is None and not _is_awaited(layout, name):
            raise
    if subscription is not None:
        origin, _ = resolve_topic(layout, topic)
        cursors = read_latest(layout_of(layout, origin.name), "cursor").cursors
        known = sorted({key.subscription for key in cursors if key.topic_id == origin.topic_id})
        if known and subscription not in known:
            raise SubscriptionNotFound(
                f"topic {str(origin.name)!r} has no subscription {subscription!r} and no dead letters of one: "
                f"it has {', '.join(known[:_MOST_NAMED])}{', ...' if len(known) > _MOST_NAMED else ''}"
                f"{did_you_mean(close_names(subscription, known))}"
            )
    return None


def _is_awaited(layout: Layout, name: TopicName) -> bool:
    """Is this the default dead letter topic of an existing topic, or does a policy name it?"""
    base = str(name).removesuffix(DEAD_LETTER_SUFFIX)
    if base != str(name) and any(
        base.startswith(f"{topic.name}-") for topic in list_topics(layout, name.tenant, name.namespace)
    ):
        return True
    policies = (
        dict(row["properties"] or ())
        for bundle in layouts_of(layout)
        for row in read_latest(bundle, "cursor").cursors.values()
    )
    return any(
        policy.get("dead_letter_topic") and parse_topic_name(policy["dead_letter_topic"]) == name for policy in policies
    )
