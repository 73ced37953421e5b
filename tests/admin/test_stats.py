"""Stats are arithmetic over the latest rows."""

import datetime

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.broker.committing.round_rows import CursorRanges
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import MESSAGES
from tests.admin.broker_double import BrokerDouble

TOPIC = "persistent://public/default/orders"
LEASE = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def publish(topic, partition, messages):
    rows = [
        {"publish_id": "p", "entry_id": entry, "partition": partition, "payload": b"x"} for entry in range(messages)
    ]
    AppendTable(topic.path).append(MESSAGES.rows(rows))


def state(topic, partition, *, end, mark_delete, ranges=(), permits=10):
    """Facts and ranges of subscription ``s`` with one consumer ``c`` on a partition."""
    common = {"topic": TOPIC, "topic_id": topic.topic_id, "partition": partition}
    cursor = {
        **common,
        "kind": "cursor",
        "subscription": "s",
        "subscription_type": "Shared",
        "mark_delete_position": mark_delete,
        "read_position": end,
        "msg_out_counter": 20,
        "msg_redeliver_counter": 2,
    }
    consumer = {
        **common,
        "kind": "consumer",
        "subscription": "s",
        "consumer_id": "id",
        "consumer_name": "c",
        "permits": permits,
        "is_blocked": False,
        "join_order": 0,
        "lease_time": LEASE,
        "msg_out_counter": 20,
    }
    key = CursorKey(topic.topic_id, partition, "s")
    return [{**common, "kind": "topic", "ledger_id": 1, "end_position": end}, cursor, consumer], [
        CursorRanges(key, TOPIC, ranges)
    ]


def test_backlog_and_unacked_follow_from_the_ranges(layout):
    """Entries behind mark-delete that are not acknowledged; a batch of which a part is acknowledged is one (3.28,
    0.29)."""
    topic = create_topic(layout, TOPIC)
    publish(topic, -1, 20)
    BrokerDouble(layout).commit_round(
        *state(
            topic,
            -1,
            end=20,
            mark_delete=4,
            ranges=[
                Range(5, 6, "pending", consumer_id="id", batch_size=1),
                Range(7, 9, "acknowledged"),
                Range(10, 10, "pending", consumer_id="id", batch_size=8, ack_set=(0b1010,)),
                Range(11, 19, "pending", consumer_id="other", batch_size=3),
            ],
        )
    )
    admin = Admin(f"delta:{layout.root}")
    stats = admin.stats(TOPIC)
    subscription = stats["subscriptions"]["s"]
    assert stats["msgInCounter"] == 20
    assert subscription["msgBacklog"] == subscription["msgBacklogNoDelayed"] == 20 - 5 - 3
    assert subscription["unackedMessages"] == 2 + 2 + 27
    assert subscription["nonContiguousDeletedMessagesRanges"] == 1
    assert (subscription["type"], subscription["markDeletePosition"], subscription["ackedEntries"]) == ("Shared", 4, 8)
    [consumer] = subscription["consumers"]
    assert (
        consumer["consumerName"],
        consumer["availablePermits"],
        consumer["unackedMessages"],
        consumer["msgOutCounter"],
    ) == ("c", 10, 4, 20)
    assert admin.subscriptions(TOPIC) == ["s"]


def test_a_partitioned_topic_is_the_sum_of_its_partitions(layout):
    topic = create_topic(layout, TOPIC, 2)
    broker = BrokerDouble(layout)
    for partition, messages in ((0, 5), (1, 7)):
        publish(topic, partition, messages)
        broker.commit_round(*state(topic, partition, end=messages, mark_delete=1, permits=3))
    admin = Admin(f"delta:{layout.root}")
    stats = admin.stats(TOPIC)
    assert (stats["msgInCounter"], stats["subscriptions"]["s"]["msgBacklog"]) == (12, 3 + 5)
    assert [consumer["availablePermits"] for consumer in stats["subscriptions"]["s"]["consumers"]] == [6]
    assert stats["partitions"][f"{TOPIC}-partition-1"] == admin.stats(f"{TOPIC}-partition-1")
    assert admin.stats(f"{TOPIC}-partition-1")["subscriptions"]["s"]["msgBacklog"] == 5


def test_stretches_of_what_is_acknowledged_behind_mark_delete_are_counted(layout):
    """Those that adjoin are one, and a topic has those of all its partitions."""
    topic = create_topic(layout, TOPIC, 2)
    broker = BrokerDouble(layout)
    done = [Range(3, 3, "acknowledged"), Range(4, 5, "acknowledged"), Range(7, 7, "acknowledged")]
    for partition, ranges in ((0, done), (1, done[:1])):
        publish(topic, partition, 9)
        broker.commit_round(*state(topic, partition, end=9, mark_delete=1, ranges=ranges))
    stats = Admin(f"delta:{layout.root}").stats(TOPIC)
    each = [stats, *(stats["partitions"][f"{TOPIC}-partition-{number}"] for number in (0, 1))]
    assert [one["subscriptions"]["s"]["nonContiguousDeletedMessagesRanges"] for one in each] == [3, 2, 1]


def test_a_removed_subscription_and_a_topic_of_the_same_name_leave_nothing(layout):
    topic = create_topic(layout, TOPIC)
    broker, admin = BrokerDouble(layout), Admin(f"delta:{layout.root}")
    broker.commit_round(*state(topic, -1, end=5, mark_delete=1))
    admin.delete_topic(TOPIC, force=True)
    admin.create_topic(TOPIC)
    assert admin.stats(TOPIC) == {
        "msgInCounter": 0,
        "msgRateIn": 0.0,
        "storageSize": 0,
        "backlogSize": 0,
        "publishers": [],
        "subscriptions": {},
        "deduplicationStatus": "Disabled",
        "compaction": {
            "lastCompactionRemovedEventCount": 0,
            "lastCompactionSucceedTimestamp": 0,
            "lastCompactionFailedTimestamp": 0,
            "lastCompactionDurationTimeInMills": 0,
        },
    }


def test_a_topic_with_connected_consumers_is_not_deleted_without_force(layout):
    topic = create_topic(layout, TOPIC)
    BrokerDouble(layout).commit_round(*state(topic, -1, end=5, mark_delete=1))
    with pytest.raises(NotAllowedError, match="connected consumers"):
        Admin(f"delta:{layout.root}").delete_topic(TOPIC)
