"""What SQL does to messages that were published: gone for everybody, or delivered as they are now. Never an error,
never counted as seen."""

import contextlib

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import pulsar_spark as pulsar
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.entries.deletions import DeletedEntries, deletions_of
from pulsar_spark.storage.topics.topics import read_topic
from tests.support.waiting import eventually
from tests.tables.conftest import SHARED, receive, receive_all


def backlog(root) -> int:
    return root.stats()["subscriptions"]["s"]["msgBacklog"]


@pytest.mark.default
@pytest.mark.parametrize("options", [{}, SHARED])
@pytest.mark.parametrize("vacuumed", [False, True])
def test_deleted_messages_are_skipped_and_acknowledged(root, options, vacuumed):
    consumer = root.subscribe(**options)
    consumer.close()
    root.send(range(10))
    root.table().delete("entry_id >= 2 and entry_id < 6")
    if vacuumed:
        root.table().vacuum(0, dry_run=False, enforce_retention_duration=False)
    consumer = root.subscribe(**options)
    assert receive_all(consumer, 6) == ["0", "1", "6", "7", "8", "9"]
    eventually(lambda: backlog(root) == 0)
    assert root.stats()["deletedMessages"] == 4
    root.send(["after"])
    assert receive(consumer, 1) == ["after"]


def test_what_is_deleted_behind_the_consumers_back_is_not_shown(root):
    """It was sent, and waits in the queue: the file it was published in still lies there."""
    consumer = root.subscribe()
    root.send(range(10))
    assert receive(consumer, 1) == ["0"]
    root.table().delete("entry_id = 5")
    eventually(lambda: root.broker.rounds.bundle.topic("persistent://public/default/t").version == 2)
    root.send(range(10, 20))
    rest = receive(consumer)
    assert rest[-10:] == [str(number) for number in range(10, 20)]


def test_a_part_of_a_batch_is_deleted(root):
    consumer = root.subscribe(receiver_queue_size=3, **SHARED)
    consumer.close()
    root.send(range(10), batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=5000)
    root.table().delete("batch_index = 0 or batch_index = 3")
    consumer = root.subscribe(receiver_queue_size=3, **SHARED)
    assert receive_all(consumer, 6) == ["1", "2", "4", "6", "7", "9"]
    eventually(lambda: backlog(root) == 0)
    assert (root.stats()["deletedMessages"], root.stats()["msgInCounter"]) == (4, 6)


def test_everything_is_deleted(root):
    root.subscribe().close()
    root.send(range(5))
    root.table().delete()
    consumer = root.subscribe()
    root.send(["next"])
    assert receive_all(consumer, 1) == ["next"]
    eventually(lambda: backlog(root) == 0)


def test_permits_of_deleted_messages_come_back(root):
    consumer = root.subscribe(receiver_queue_size=4, **SHARED)
    consumer.close()
    for number in range(20):
        root.send([number])
    root.table().delete("entry_id = 0")
    root.send(["last"])
    assert receive(root.subscribe(receiver_queue_size=4, **SHARED), 1) == ["last"]


def test_updated_messages_are_delivered_as_they_are_now(root):
    root.subscribe().close()
    root.send(range(4))
    root.table().update(updates={"partition_key": "'changed'"}, predicate="entry_id = 2")
    consumer = root.subscribe()
    messages = [consumer.receive(60_000) for _ in range(4)]
    received = sorted((message.data().decode(), message.partition_key()) for message in messages)
    assert received == [("0", ""), ("1", ""), ("2", "changed"), ("3", "")]
    assert "deletedMessages" not in root.stats() and "error" not in root.stats()


IMPOSSIBLE = {
    "batch size": {"batch_size": "-5"},
    "least batch size": {"batch_size": "-2147483648"},
    "entry id": {"entry_id": "-9223372036854775808"},
    "batch index": {"batch_index": "-3"},
    "year": {"publish_time": "to_timestamp_micros(253402300800000000)"},
}
BATCHES = {"batching_enabled": True, "batching_max_messages": 3, "batching_max_publish_delay_ms": 5000}


@pytest.mark.parametrize("is_numbered", [True, False])
@pytest.mark.parametrize("changed", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_rows_rewritten_with_values_that_no_message_has_stop_nobody(root, changed, is_numbered):
    """Some are of unequal batches, which are numbered by their rows; what has no place in its entry any more is as if
    it were deleted."""
    root.subscribe(**SHARED).close()
    with contextlib.nullcontext() if is_numbered else root.broker.paused():
        root.send("abcd", **BATCHES)
        if is_numbered:
            eventually(lambda: root.broker.rounds.bundle.topic("persistent://public/default/t").version == 1)
        root.table().update(updates=changed)
        root.table().vacuum(0, dry_run=False, enforce_retention_duration=False)
    root.client.create_producer("t").send(b"e")
    consumer = root.subscribe(**SHARED)
    received = []
    while "e" not in received:
        received += receive(consumer, 1)
    assert set(received) <= set("abcde") and len(received) == len(set(received))
    eventually(lambda: backlog(root) == 0)
    assert "error" not in root.stats() and root.admin.mend("t", dry_run=True) == []
    root.send("f")
    assert receive(consumer, 1) == ["f"]


def test_merge_deletes_updates_and_its_inserts_are_no_publish(root):
    root.subscribe().close()
    root.send(range(4))
    rows = root.rows()
    source = pa.table(
        {"publish_id": [*rows["publish_id"].to_pylist()[:2], "mine"], "entry_id": pa.array([0, 1, 7], pa.int64())}
    )
    (
        root.table()
        .merge(source, "s.publish_id = t.publish_id and s.entry_id = t.entry_id", source_alias="s", target_alias="t")
        .when_matched_update({"partition_key": "'merged'"}, predicate="t.entry_id = 0")
        .when_matched_delete(predicate="t.entry_id = 1")
        .when_not_matched_insert(
            {
                "publish_id": "s.publish_id",
                "entry_id": "s.entry_id",
                "batch_size": "1",
                "partition": "-1",
                "publish_time": "now()",
            }
        )
        .execute()
    )
    consumer = root.subscribe()
    messages = [consumer.receive(60_000) for _ in range(3)]
    received = sorted((message.data().decode(), message.partition_key()) for message in messages)
    assert received == [("0", "merged"), ("2", ""), ("3", "")]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(500)


def test_optimize_and_vacuum_change_nothing(root):
    root.subscribe().close()
    for number in range(6):
        root.send([number])
    root.table().optimize.compact()
    root.table().vacuum(0, dry_run=False, enforce_retention_duration=False)
    consumer = root.subscribe()
    assert receive_all(consumer, 6) == [str(number) for number in range(6)]
    assert not {"error", "deletedMessages", "lostMessages", "foreignMessages"} & root.stats().keys()


def test_restore_takes_publishes_back_and_numbering_goes_on(root):
    root.subscribe().close()
    root.send(["a", "b"])
    root.send(["c"])
    root.table().restore(1)
    consumer = root.subscribe()
    root.send(["d"])
    assert receive_all(consumer, 3) == ["a", "b", "d"]
    eventually(lambda: backlog(root) == 0)


def test_restore_gives_deleted_messages_back_to_who_has_not_passed_them(root):
    root.subscribe().close()
    root.send(["a", "b", "c"])
    root.table().delete("entry_id = 1")
    root.table().restore(1)
    assert receive_all(root.subscribe(), 3) == ["a", "b", "c"]


def test_an_overwritten_topic_has_no_messages_and_goes_on(root):
    root.subscribe().close()
    root.send(["a", "b"])
    rows = root.rows()
    write_deltalake(str(root.path()), rows.slice(0, 1), mode="overwrite")
    consumer = root.subscribe()
    root.send(["c"])
    assert receive_all(consumer, 2) == ["a", "c"], "the row that was written again is the message still"


def test_a_reader_and_peek_pass_over_what_is_deleted(root):
    root.subscribe().close()
    root.send(range(6))
    root.table().delete("entry_id in (1, 2)")
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 6)
    reader = root.client.create_reader("t", pulsar.MessageId.earliest)
    assert [reader.read_next(60_000).data() for _ in range(4)] == [b"0", b"3", b"4", b"5"]
    assert [message.data() for message in root.admin.peek_messages("t", "s", 10)] == [b"0", b"3", b"4", b"5"]
    with pytest.raises(pulsar.Timeout):
        reader.read_next(300)


def test_what_was_deleted_is_told_by_position(root):
    """Of a batch, what is left; not what was updated, moved or trimmed."""
    layout = root.client._layout
    root.subscribe().close()
    root.send(range(6))
    root.send(range(6), batching_enabled=True, batching_max_messages=3, batching_max_publish_delay_ms=5000)
    topic = read_topic(layout, "t")
    root.table().optimize.compact()
    root.table().update(updates={"partition_key": "'changed'"}, predicate="batch_index is null and entry_id = 0")
    eventually(lambda: not root.broker.rounds.bundle.has_news())
    assert deletions_of(layout, topic) == []
    version = TableLog(topic.path).latest()
    root.table().delete("batch_size > 1 and batch_index <> 1 and entry_id = 0")
    root.send(["after"])
    eventually(lambda: not root.broker.rounds.bundle.has_news())
    [batch] = [each for each in deletions_of(layout, topic) if each.ack_set is not None]
    assert batch == DeletedEntries(-1, 6, 6, (0b010,), version)
    root.table().delete("batch_size > 1")
    eventually(lambda: not root.broker.rounds.bundle.has_news())
    assert deletions_of(layout, topic) == [DeletedEntries(-1, 6, 7, None, version)]
