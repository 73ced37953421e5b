"""Create a retry letter topic with its subscription, so that messages sent there are kept and read."""

import logging
from collections.abc import Iterable

from pulsar_spark.errors import NotAllowedError
from pulsar_spark.link.requester import Requester
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of, layouts_of
from pulsar_spark.storage.topics.topics import resolve_topic

log = logging.getLogger(__name__)


def prepare_retry_topic(layout: Layout, topic: str, subscription: str, timeout: float) -> None:
    """Create *topic* and its *subscription*, from the first message on, unless they exist. Creating needs a broker;
    :class:`Timeout` without one."""
    found, partitions = resolve_topic(layout, topic, create=True)
    there = {
        key.partition
        for key in read_latest(layout_of(layout, found.name), "cursor").cursors
        if (key.topic_id, key.subscription) == (found.topic_id, subscription)
    }
    missing = [partition for partition in partitions if partition not in there]
    if not missing:
        return
    requests = [
        {
            "kind": "create_subscription",
            "topic": str(found.name),
            "partition": partition,
            "subscription": subscription,
            "properties": {"initial_position": "Earliest"},
        }
        for partition in missing
    ]
    for reply in Requester(layout, timeout_seconds=timeout).replies(requests):
        if reply.error is not None and not isinstance(reply.error, NotAllowedError):  # not allowed: it exists by now
            raise reply.error


def warn_of_unread(layout: Layout, sent: Iterable[tuple[str, str | None]]) -> None:
    """Log a warning for each (retry letter topic, subscription) without a connected consumer."""
    connected = {
        (key.topic_id, key.subscription)
        for bundle in layouts_of(layout)
        for key, consumers in read_latest(bundle, "consumer").consumers.items()
        if consumers
    }
    for name, subscription in sorted(sent, key=str):
        found, _ = resolve_topic(layout, name)
        if (found.topic_id, subscription) not in connected:
            log.warning(
                "no consumer of subscription %r reads %s: letters sent there wait for a consumer with "
                "retry_enable, or for a DataFrame consumer of that topic",
                subscription,
                name,
            )
