"""Stats of a topic in the shape of Pulsar's, derived from rows: nothing is counted on the side, so nothing can drift (semantics 0.29).

``msgInCounter`` and ``storageSize`` come from the log of the topic's table, everything else from the latest rows of ``cursor_ledger``. As in Pulsar the
backlog counts entries (3.28) and the unacknowledged and sent counters count messages. ``backlogSize`` is an estimate: the slowest subscription's
share of the topic's bytes. ``ackedEntries`` is ours: everything that is not backlog.
"""
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from pulsar_spark.protocol.cursor import ACKNOWLEDGED, PENDING, Range
from pulsar_spark.storage.cursor_ledger import LatestRows
from pulsar_spark.storage.topics import Topic

_SUMMED = ("msgBacklog", "unackedMessages", "msgOutCounter", "msgRedeliverCounter", "ackedEntries")
_SUMMED_OF_CONSUMER = ("availablePermits", "unackedMessages", "msgOutCounter", "msgRedeliverCounter")


class Stored(NamedTuple):
    """What the table of a topic holds of one partition."""

    messages: int
    size: int


def read_stored(topic: Topic) -> dict[int, Stored]:
    """Messages and bytes of each partition, from the statistics of the table's log."""
    stored = dict.fromkeys(topic.partition_indexes, Stored(0, 0))
    partition_column = ["partition.partition"] if topic.partitions else []
    files = pa.table(DeltaTable(str(topic.path)).get_add_actions(flatten=True)).select(["num_records", "size_bytes", *partition_column])
    for row in files.to_pylist():
        partition = int(row["partition.partition"]) if topic.partitions else -1
        before = stored[partition]
        stored[partition] = Stored(before.messages + row["num_records"], before.size + row["size_bytes"])
    return stored


def partition_stats(latest: LatestRows, topic: Topic, partition: int, stored: Stored) -> dict:
    """Stats of one partition (-1 on a topic without partitions), from the latest rows."""
    numbered = latest.topics.get((topic.topic_id, partition))
    end_position = numbered["end_position"] if numbered else 0
    cursors = {key: row for key, row in latest.cursors.items() if (key.topic_id, key.partition) == (topic.topic_id, partition)}
    subscriptions = {}
    for key, cursor in sorted(cursors.items()):
        ranges = [held for page in latest.pages[key].values() for held in page]
        subscriptions[key.subscription] = _subscription_stats(cursor, ranges, list(latest.consumers[key].values()), end_position)
    longest = max((subscription["msgBacklog"] for subscription in subscriptions.values()), default=0)
    return {"msgInCounter": stored.messages, "storageSize": stored.size, "backlogSize": stored.size * longest // end_position if end_position else 0,
            "subscriptions": subscriptions}


def sum_stats(partitions: dict[int, dict]) -> dict:
    """Stats of a partitioned topic: counters summed over its partitions; a consumer of several partitions appears once."""
    total = {name: sum(stats[name] for stats in partitions.values()) for name in ("msgInCounter", "storageSize", "backlogSize")}
    subscriptions: dict[str, dict] = {}
    for stats in partitions.values():
        for name, subscription in stats["subscriptions"].items():
            if name not in subscriptions:
                subscriptions[name] = {"type": subscription["type"], **dict.fromkeys(_SUMMED, 0), "blockedSubscriptionOnUnackedMsgs": False, "consumers": {}}
            _add_subscription(subscriptions[name], subscription)
    for subscription in subscriptions.values():
        subscription["consumers"] = list(subscription["consumers"].values())
    return {**total, "subscriptions": dict(sorted(subscriptions.items()))}


def _add_subscription(total: dict, subscription: dict) -> None:
    total["type"] = total["type"] or subscription["type"]
    total["blockedSubscriptionOnUnackedMsgs"] |= subscription["blockedSubscriptionOnUnackedMsgs"]
    for counter in _SUMMED:
        total[counter] += subscription[counter]
    for consumer in subscription["consumers"]:
        known = total["consumers"].get(consumer["consumerId"])
        if known is None:
            total["consumers"][consumer["consumerId"]] = dict(consumer)
        else:
            known.update({counter: known[counter] + consumer[counter] for counter in _SUMMED_OF_CONSUMER})
            known["blockedConsumerOnUnackedMsgs"] |= consumer["blockedConsumerOnUnackedMsgs"]


def _subscription_stats(cursor: dict, ranges: list[Range], consumers: list[dict], end_position: int) -> dict:
    mark_delete = cursor["mark_delete_position"]
    acked = mark_delete + 1 + sum(held.entries for held in ranges if held.status == ACKNOWLEDGED)
    return {
        "type": cursor["subscription_type"], "msgBacklog": end_position - acked, "ackedEntries": acked,
        "unackedMessages": sum(held.unacked_messages for held in ranges if held.status == PENDING),
        "msgOutCounter": cursor["msg_out_counter"] or 0, "msgRedeliverCounter": cursor["msg_redeliver_counter"] or 0,
        "markDeletePosition": mark_delete, "readPosition": cursor["read_position"],
        "blockedSubscriptionOnUnackedMsgs": bool(cursor["is_blocked"]),
        "activeConsumerName": next((row["consumer_name"] for row in consumers if row["is_active"]), None),
        "consumers": [_consumer_stats(row, ranges) for row in sorted(consumers, key=lambda row: row["join_order"] or 0)],
    }


def _consumer_stats(consumer: dict, ranges: list[Range]) -> dict:
    return {
        "consumerId": consumer["consumer_id"], "consumerName": consumer["consumer_name"], "availablePermits": consumer["permits"] or 0,
        "unackedMessages": sum(held.unacked_messages for held in ranges if held.status == PENDING and held.consumer_id == consumer["consumer_id"]),
        "msgOutCounter": consumer["msg_out_counter"] or 0, "msgRedeliverCounter": consumer["msg_redeliver_counter"] or 0,
        "blockedConsumerOnUnackedMsgs": bool(consumer["is_blocked"]), "priorityLevel": consumer["priority_level"] or 0,
        "leaseTime": consumer["lease_time"].isoformat() if consumer["lease_time"] else None,
    }
