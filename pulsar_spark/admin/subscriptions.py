"""Subscriptions, with the verbs of ``pulsar-admin``: create, list, move, delete."""

import datetime
from typing import Literal

from pulsar_spark.client.arguments import check_count
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.link.inbox import Reply
from pulsar_spark.link.requester import Requester
from pulsar_spark.protocol.suggestions import no_subscription
from pulsar_spark.protocol.topics.topic_name import check_subscription
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.entries.lost import lost_entries_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import resolve_partition, resolve_topic

POSITIONS = ("earliest", "latest")


class Subscriptions:
    """Part of ``Admin`` for subscriptions. All but :meth:`subscriptions` need the
    broker."""

    def __init__(self, layout: Layout, requester: Requester):
        self.layout, self._requester = layout, requester

    def create_subscription(
        self,
        topic: str,
        subscription: str,
        initial_position: Literal["earliest", "latest", "Earliest", "Latest"] = "latest",
        *,
        create: bool = False,
    ) -> None:
        """Create a subscription at ``"earliest"`` or ``"latest"`` (*initial_position*). :class:`TopicNotFound` for a
        missing topic, unless *create*."""
        if str(initial_position).lower() not in POSITIONS:
            raise InvalidConfiguration(f"initial position {initial_position!r}: give 'earliest' or 'latest'")
        check_subscription(subscription)
        if create:
            resolve_topic(self.layout, topic, create=True)
        self._ask(topic, subscription, "create_subscription", {"initial_position": str(initial_position).capitalize()})

    def subscriptions(self, topic: str) -> list[str]:
        """The names of the topic's subscriptions."""
        found, partitions = resolve_topic(self.layout, topic)
        return sorted(
            {
                key.subscription
                for key in read_latest(layout_of(self.layout, found.name), "cursor").cursors
                if key.topic_id == found.topic_id and key.partition in partitions
            }
        )

    def unsubscribe(self, topic: str, subscription: str, force: bool = False) -> None:
        """Delete the subscription; refused while consumers are connected, unless *force*."""
        self._ask(topic, subscription, "unsubscribe", {"force": "true" if force else "false"})

    def skip_messages(self, topic: str, subscription: str, messages: int) -> int:
        """Acknowledge the next *messages* (0 or more) of the backlog of a *topic*'s *subscription* without delivery,
        and return their number. Name one partition of a partitioned topic."""
        check_count("messages", messages, least=0)
        resolve_partition(self.layout, topic, "skip on")
        return sum(
            int(reply.text or 0) for reply in self._ask(topic, subscription, "skip", {"messages": str(messages)})
        )

    def skip_lost(self, topic: str, subscription: str) -> int:
        """Acknowledge lost messages after mark-delete (see :meth:`lost_messages`), so that the cursor can move past
        them, and return their number."""
        check_subscription(subscription)
        found, partitions = resolve_topic(self.layout, topic)
        acknowledged = {
            key.partition: cursor["mark_delete_position"]
            for key, cursor in read_latest(layout_of(self.layout, found.name)).cursors.items()
            if (key.topic_id, key.subscription) == (found.topic_id, subscription)
        }
        if not acknowledged:
            raise no_subscription(str(found.name), subscription, self.subscriptions(topic))
        lost = lost_entries_of(self.layout, found, partitions, acknowledged)
        self._requester.ask(
            [
                {
                    "kind": "ack",
                    "topic": str(found.name),
                    "partition": each.partition,
                    "subscription": subscription,
                    "first": each.first_position,
                    "last": each.last_position,
                    "properties": {"receipt": "true"},
                }
                for each in lost
            ]
        )
        return sum(each.messages for each in lost)

    def clear_backlog(self, topic: str, subscription: str) -> None:
        """Acknowledge every message published so far."""
        self._ask(topic, subscription, "clear_backlog")

    def expire_messages(self, topic: str, subscription: str, seconds: int) -> None:
        """Acknowledge messages that were published more than *seconds* ago."""
        check_count("seconds", seconds)
        self._ask(topic, subscription, "expire", {"seconds": str(seconds)})

    def reset_cursor(
        self, topic: str, subscription: str, to: Literal["earliest", "latest"] | int | datetime.datetime
    ) -> None:
        """Move the cursor: *to* is ``"earliest"``, ``"latest"``, the position of the next entry to deliver, or a
        publish time, which means the first entry published at or after it."""
        if isinstance(to, datetime.datetime):
            properties = {"publish_time_ms": str(int(to.timestamp() * 1000))}
        elif to in POSITIONS or (isinstance(to, int) and not isinstance(to, bool) and to >= 0):
            properties = {"position": str(to)}
        else:
            raise InvalidConfiguration(
                f"position {to!r}: give 'earliest', 'latest', a position (0, 1, 2...) or a datetime"
            )
        self._ask(topic, subscription, "seek", properties)

    def _ask(
        self, topic: str, subscription: str | None, kind: str, properties: dict[str, str] | None = None
    ) -> list[Reply]:
        if subscription is not None:
            check_subscription(subscription)
        found, partitions = resolve_topic(self.layout, topic)
        return self._requester.ask(
            [
                {
                    "kind": kind,
                    "topic": str(found.name),
                    "partition": partition,
                    "subscription": subscription,
                    "properties": properties,
                }
                for partition in partitions
            ]
        )
