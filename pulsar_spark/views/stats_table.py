"""The values of ``stats`` as rows: one for each topic partition, subscription and consumer."""

from collections.abc import Iterator

import pyarrow as pa

from pulsar_spark.protocol.subscriptions.membership import KEY_SHARED
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.views.stats import Observation, partition_stats
from pulsar_spark.views.view_specs import PLACE, view_table

STATS = view_table(
    "stats",
    "a topic partition, a subscription on it, or a consumer of that",
    *PLACE,
    ("subscription", pa.string(), "name of the subscription; null in the row of the topic partition"),
    (
        "consumer_name",
        pa.string(),
        "name of the consumer; null in the rows of the topic partition and the subscription",
    ),
    ("consumer_id", pa.string(), "id of the consumer; null likewise"),
    ("subscription_type", pa.string(), "Exclusive, Failover, Shared or KeyShared while consumers are connected"),
    ("key_shared_mode", pa.string(), "AUTO_SPLIT or STICKY on a KeyShared subscription with consumers, else null"),
    ("messages", pa.int64(), "topic partition: messages stored"),
    ("bytes", pa.int64(), "topic partition: bytes stored"),
    ("backlog", pa.int64(), "subscription: entries not acknowledged, a batch as one"),
    ("unacked", pa.int64(), "messages delivered and not acknowledged"),
    ("oldest_unacked_seconds", pa.float64(), "age of the oldest unacknowledged delivery; null for none"),
    ("delayed", pa.int64(), "subscription: entries of the backlog that wait for their deliver time"),
    ("dead", pa.int64(), "subscription: messages in its dead letter topic"),
    ("delivered", pa.int64(), "messages delivered since the subscription was made, or the consumer connected"),
    ("redelivered", pa.int64(), "messages among them that had been delivered before"),
    ("rate_in", pa.float64(), "topic partition: messages a second published in the last minute"),
    ("rate_out", pa.float64(), "messages a second delivered in the last minute"),
    ("rate_redeliver", pa.float64(), "messages a second among them that had been delivered before"),
    ("permits", pa.int64(), "consumer: messages it may still be sent"),
    ("waiting_letters", pa.int64(), "subscription: messages whose letters could not be written yet"),
    ("letterless", pa.int64(), "subscription: messages that were deleted or trimmed before their letter was written"),
    ("is_blocked", pa.bool_(), "subscription, consumer: held back by the limit of unacknowledged messages"),
    (
        "draining_hashes",
        pa.int64(),
        "subscription: sticky-key hashes that wait for a consumer other than their owner; consumer: "
        "hashes that wait for it; null unless KeyShared",
    ),
    ("draining_unacked", pa.int64(), "messages delivered and not acknowledged of these hashes; null likewise"),
    (
        "error",
        pa.string(),
        "topic partition: what stopped the topic; topic partition, subscription: why it is set aside; null while it is "
        "served",
    ),
    ("error_kind", pa.string(), "stopped or set_aside: which of the two the error is; null likewise"),
    ("foreign", pa.int64(), "topic partition: rows added to the table by other writers that are not valid messages"),
    ("deleted", pa.int64(), "topic partition: messages deleted from the table, except by trimming"),
    ("lost", pa.int64(), "topic partition: messages whose file was deleted by hand"),
)


_OF_TOPIC = {
    "messages": "msgInCounter",
    "bytes": "storageSize",
    "rate_in": "msgRateIn",
    "error": "error",
    "error_kind": "errorKind",
    "foreign": "foreignMessages",
    "deleted": "deletedMessages",
    "lost": "lostMessages",
}
_OF_EACH = {
    "unacked": "unackedMessages",
    "oldest_unacked_seconds": "oldestUnackedSeconds",
    "delivered": "msgOutCounter",
    "redelivered": "msgRedeliverCounter",
    "rate_out": "msgRateOut",
    "rate_redeliver": "msgRateRedeliver",
    "draining_hashes": "drainingHashesCount",
    "draining_unacked": "drainingHashesUnackedMessages",
}
_OF_SUBSCRIPTION = _OF_EACH | {
    "backlog": "msgBacklog",
    "delayed": "msgDelayed",
    "dead": "deadLetters",
    "waiting_letters": "waitingLetters",
    "letterless": "letterlessMessages",
    "is_blocked": "blockedSubscriptionOnUnackedMsgs",
    "error": "error",
    "error_kind": "errorKind",
}
_OF_CONSUMER = _OF_EACH | {
    "consumer_name": "consumerName",
    "consumer_id": "consumerId",
    "permits": "availablePermits",
    "is_blocked": "blockedConsumerOnUnackedMsgs",
}
"""The name in ``stats`` of each column's value."""


def stats_rows(observed: Observation, topics: list[Topic]) -> Iterator[dict]:
    for topic in topics:
        for partition, stored in observed.stored(topic).items():
            found = partition_stats(observed, topic, partition, stored)
            place = {"topic": str(topic.name), "partition": partition}
            yield place | {"foreign": 0, "deleted": 0, "lost": 0} | _named(found, _OF_TOPIC)
            for name, subscription in found["subscriptions"].items():
                yield from _subscription_rows(place | {"subscription": name}, subscription)


def _subscription_rows(place: dict, subscription: dict) -> Iterator[dict]:
    mode = subscription.get("keySharedMode")
    kind = subscription["type"] if mode is None else KEY_SHARED
    place = place | {"subscription_type": kind, "key_shared_mode": mode}
    yield place | _named(subscription, _OF_SUBSCRIPTION)
    for consumer in subscription["consumers"]:
        yield place | _named(consumer, _OF_CONSUMER)


def _named(stats: dict, names: dict[str, str]) -> dict:
    return {column: stats[name] for column, name in names.items() if name in stats}
