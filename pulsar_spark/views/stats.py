"""Stats of a topic, nested as in Pulsar and derived from rows (semantics 0.29).

As in Pulsar the backlog counts entries (3.28), delayed ones too (``msgDelayed``; ``msgBacklogNoDelayed`` is without
them); unacknowledged and sent counters count messages. ``backlogSize`` is an estimate from the slowest subscription.

Ours: ``ackedEntries`` (not backlog); ``oldestUnackedSeconds``, null for none; ``deadLetters``; ``waitingLetters``, not
written yet; ``letterlessMessages``, deleted or trimmed before their letter was written. Only if there are any:
``error`` and ``errorKind`` (``stopped`` or ``set_aside``), ``foreignMessages`` (rows that are no publish),
``deletedMessages`` (except by trimming) and ``lostMessages`` (their file is gone)."""

import datetime
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from pulsar_spark.errors import InvalidTopicName, NotARoot, TopicNotFound
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from pulsar_spark.protocol.redelivery.letters import dead_letters_to
from pulsar_spark.protocol.subscriptions.membership import KEY_SHARED
from pulsar_spark.protocol.subscriptions.unacked_limit import BLOCKED_BY_BROKER
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups, chunks_of
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows, read_latest
from pulsar_spark.storage.delta.scan import open_as_far_as_it_goes
from pulsar_spark.storage.entries.topic_files import is_there
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.repair.condition import count_deleted, read_condition
from pulsar_spark.storage.topics.producers import Connected, connected
from pulsar_spark.storage.topics.topics import Topic, read_topic
from pulsar_spark.views.activity import Activity, per_second, rate_in, read_activity, round_time
from pulsar_spark.views.backlog import Unacked, read_backlog, read_unacked
from pulsar_spark.views.key_shared import consumer_stats, read_key_shared, subscription_stats
from pulsar_spark.views.overview.errors import Error, Errors, count_waiting_letters
from pulsar_spark.views.overview.values import STOPPED

ERROR_FIELDS = ("error", "errorKind")
HARM_FIELDS = ("foreignMessages", "deletedMessages", "lostMessages")
_TYPE_NAMES = {KEY_SHARED: "Key_Shared"}
"""Types of subscription that Pulsar's stats spell differently from Python clients."""
DELETED_RANGES = "nonContiguousDeletedMessagesRanges"


class Stored(NamedTuple):
    """What a topic's table holds of one partition: ``foreign`` rows are no publish, ``lost`` messages have no file,
    ``deleted`` ones were removed. ``error`` is what stopped the topic."""

    messages: int
    size: int
    foreign: int = 0
    lost: int = 0
    deleted: int = 0
    error: str | None = None


def read_stored(topic: Topic, foreign: Collection[str] = ()) -> dict[int, Stored]:
    """Messages and bytes of each partition, from the table's log; files *foreign* hold rows that are no publish."""
    stored = dict.fromkeys(topic.partition_indexes, Stored(0, 0))
    partition_column = ["partition.partition"] if topic.partitions else []
    files = pa.table(open_as_far_as_it_goes(topic.path).get_add_actions(flatten=True)).select(
        ["path", "num_records", "size_bytes", *partition_column]
    )
    for row in files.to_pylist():
        partition, rows = int(row["partition.partition"] or 0) if topic.partitions else -1, row["num_records"] or 0
        if partition not in stored:
            continue  # foreign rows: the topic has no such partition
        before = stored[partition]
        is_foreign, is_lost = unquote(row["path"]) in foreign, not is_there(f"{topic.path}/{unquote(row['path'])}")
        stored[partition] = Stored(
            before.messages + (0 if is_foreign else rows),
            before.size + row["size_bytes"],
            before.foreign + (rows if is_foreign else 0),
            before.lost + (rows if is_lost and not is_foreign else 0),
        )
    return stored


class Observation:
    def __init__(self, layout: Layout, now: datetime.datetime | None = None):
        self.layout = layout
        self.now = now or datetime.datetime.now(datetime.UTC)
        self.latest: LatestRows = read_latest(layout)
        self.errors, self.waiting_letters = Errors(self.latest), count_waiting_letters(self.latest)
        self.activity: Activity = read_activity(layout, self.now)
        self.ledgers = LedgerIndex(layout)
        self._chunk_groups: dict[tuple[str, int], ChunkGroups | None] = {}
        self._producers: dict[str, list[Connected]] = {}

    def stored(self, topic: Topic) -> dict[int, Stored]:
        """The contents and damage of a topic's table, by partition, with or without a broker."""
        condition = read_condition(self.layout, topic, self.latest.numbered_until(topic.topic_id))
        found = read_stored(topic, {file.path for file in condition.foreign if file.rows})
        firsts = {
            partition: row["first"] or 0
            for (topic_id, partition), row in self.latest.topics.items()
            if topic_id == topic.topic_id
        }
        deleted = count_deleted(
            self.layout, topic, condition, firsts, {partition: part.messages for partition, part in found.items()}
        )
        return {
            partition: part._replace(deleted=deleted[partition], error=condition.error)
            for partition, part in found.items()
        }

    def chunk_groups(self, topic: Topic, partition: int) -> ChunkGroups | None:
        place = topic.topic_id, partition
        if place not in self._chunk_groups:
            has_some = self.ledgers.last_chunk_position(*place) >= 0
            self._chunk_groups[place] = chunks_of(self.layout, topic, partition) if has_some else None
        return self._chunk_groups[place]

    def publishers(self, topic: Topic, partition: int) -> list[dict]:
        """Connected producers of a topic partition, without those that wait for the topic."""
        if topic.topic_id not in self._producers:
            self._producers[topic.topic_id] = connected(topic.path)
        there = self._producers[topic.topic_id]
        return [{"producerName": each.name} for each in there if partition in each.partitions and not each.is_waiting]

    def seconds_since(self, delivery_round: int) -> float | None:
        then = round_time(self.layout, delivery_round)
        return None if then is None else round(max((self.now - then).total_seconds(), 0.0), 3)

    def letterless(self, key: CursorKey) -> int:
        return self.latest.letterless[key]["msg_out_counter"] if key in self.latest.letterless else 0

    def dead_letters(self, cursor: dict) -> int:
        name = dead_letters_to(dict(cursor["properties"] or []), cursor["topic"], cursor["subscription"])
        try:
            return sum(stored.messages for stored in read_stored(read_topic(self.layout, name)).values())
        except (TopicNotFound, NotARoot, InvalidTopicName):
            return 0


def partition_stats(observed: Observation, topic: Topic, partition: int, stored: Stored) -> dict:
    """Stats of one partition (-1 on a topic without partitions)."""
    latest = observed.latest
    numbered = latest.topics.get((topic.topic_id, partition))
    end_position = numbered["end_position"] if numbered else 0
    subscriptions = {}
    for key in sorted(latest.cursors):
        if (key.topic_id, key.partition) == (topic.topic_id, partition):
            subscriptions[key.subscription] = _subscription_stats(observed, topic, key, end_position)
    longest = max((subscription["msgBacklog"] for subscription in subscriptions.values()), default=0)
    return {
        **_error(observed.errors.set_aside(topic.topic_id)),
        "msgInCounter": stored.messages,
        "msgRateIn": rate_in(topic, partition, observed.now),
        "storageSize": stored.size,
        "backlogSize": stored.size * longest // end_position if end_position else 0,
        **_harm(stored),
        "publishers": observed.publishers(topic, partition),
        "subscriptions": subscriptions,
    }


def _harm(stored: Stored) -> dict:
    kind = STOPPED if stored.error else None
    found = zip(
        (*ERROR_FIELDS, *HARM_FIELDS), (stored.error, kind, stored.foreign, stored.deleted, stored.lost), strict=True
    )
    return {name: value for name, value in found if value}


def _subscription_stats(observed: Observation, topic: Topic, key: CursorKey, end_position: int) -> dict:
    cursor = observed.latest.cursors[key]
    ranges, unacked = observed.latest.ranges(key), read_unacked(observed.latest, key)
    consumers = sorted(observed.latest.consumers[key].values(), key=lambda row: row["join_order"] or 0)
    now = int(observed.now.timestamp() * 1_000_000)
    key_shared = read_key_shared(observed.layout, topic.path, observed.latest, key)
    chunks = observed.chunk_groups(topic, key.partition)
    backlog = read_backlog(observed.latest, key, observed.ledgers, end_position, now, chunks)
    return {
        **_error(observed.errors.set_aside(*key)),
        "type": _TYPE_NAMES.get(cursor["subscription_type"], cursor["subscription_type"]),
        "msgBacklog": backlog.entries,
        "msgBacklogNoDelayed": backlog.entries - backlog.delayed,
        "ackedEntries": end_position - backlog.entries,
        **_unacked_stats(observed, key, None, unacked),
        "msgDelayed": backlog.delayed,
        "msgOutCounter": cursor["msg_out_counter"] or 0,
        "msgRedeliverCounter": cursor["msg_redeliver_counter"] or 0,
        "markDeletePosition": cursor["mark_delete_position"],
        "readPosition": cursor["read_position"],
        DELETED_RANGES: sum(range_.status == ACKNOWLEDGED for range_ in ranges),
        "deadLetters": observed.dead_letters(cursor),
        "waitingLetters": observed.waiting_letters[key],
        "letterlessMessages": observed.letterless(key),
        "blockedSubscriptionOnUnackedMsgs": bool(cursor["is_blocked"]) or cursor["status"] == BLOCKED_BY_BROKER,
        "activeConsumerName": next((row["consumer_name"] for row in consumers if row["is_active"]), None),
        **(subscription_stats(key_shared) if key_shared else {}),
        "consumers": [
            _consumer_stats(observed, key, row, unacked)
            | (consumer_stats(key_shared, row["consumer_id"]) if key_shared else {})
            for row in consumers
        ],
    }


def _error(found: Error | None) -> dict:
    return {} if found is None else dict(zip(ERROR_FIELDS, (found.text, found.kind)))


def _consumer_stats(observed: Observation, key: CursorKey, consumer: dict, unacked: dict) -> dict:
    return {
        "consumerId": consumer["consumer_id"],
        "consumerName": consumer["consumer_name"],
        "availablePermits": consumer["permits"] or 0,
        **_unacked_stats(observed, key, consumer["consumer_id"], unacked),
        "msgOutCounter": consumer["msg_out_counter"] or 0,
        "msgRedeliverCounter": consumer["msg_redeliver_counter"] or 0,
        "blockedConsumerOnUnackedMsgs": bool(consumer["is_blocked"]),
        "priorityLevel": consumer["priority_level"] or 0,
        "leaseTime": consumer["lease_time"].isoformat() if consumer["lease_time"] else None,
    }


def _unacked_stats(
    observed: Observation, key: CursorKey, consumer_id: str | None, unacked: dict[str | None, Unacked]
) -> dict:
    found = unacked.get(consumer_id, Unacked())
    return {
        "unackedMessages": found.messages,
        "oldestUnackedSeconds": None if found.oldest_round is None else observed.seconds_since(found.oldest_round),
        "msgRateOut": per_second(observed.activity.delivered, key, consumer_id),
        "msgRateRedeliver": per_second(observed.activity.redelivered, key, consumer_id),
    }
