"""A file of a topic taken by hand: its messages are named as lost, everything else flows, and skipping them is a
command."""

import errno
import os
from datetime import timedelta

import pyarrow.parquet as pq
import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.entries import lost as storage_lost
from tests.support.waiting import eventually
from tests.tables.conftest import SHARED, receive, receive_all


def lose(root, version: int, topic="t") -> str:
    file = TableLog(root.path(topic)).commit(version).added[0].path
    (root.path(topic) / file).unlink()
    return file


@pytest.mark.parametrize("options", [{}, SHARED, {"receiver_queue_size": 2, **SHARED}])
def test_lost_messages_are_an_error_once_and_the_rest_flows(root, options):
    root.subscribe(**options).close()
    for values in ("ab", "cd", "ef"):
        root.send(values)
    file = lose(root, 2)
    consumer = root.subscribe(**options)
    assert receive(consumer, 2) == ["a", "b"]
    with pytest.raises(pulsar.MessagesLost, match="2:0 to 2:1") as raised:
        consumer.receive(60_000)
    assert (raised.value.ledger_id, raised.value.ranges, raised.value.path) == (
        2,
        ((0, 1),),
        file,
    ) and "skip-lost" in str(raised.value)
    assert receive_all(consumer, 2) == ["e", "f"]
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 2)
    assert root.stats()["lostMessages"] == 2
    assert [
        (each["first_position"], each["last_position"], each["messages"], each["path"])
        for each in root.admin.lost_messages("t")
    ] == [(2, 3, 2, file)]
    assert root.admin.skip_lost("t", "s") == 2
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 0)
    root.send(["g"])
    assert receive_all(consumer, 1) == ["g"]


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:3], lambda data: data[:-50], lambda data: bytes(len(data))]
)
def test_a_file_that_is_not_whole_is_lost_too(only_in_files, root, damage):
    """As a power loss leaves it: empty, cut off, zeros."""
    root.subscribe().close()
    for values in ("ab", "cd", "ef"):
        root.send(values)
    file = root.path() / TableLog(root.path()).commit(2).added[0].path
    file.write_bytes(damage(file.read_bytes()))
    consumer = root.subscribe()
    assert receive(consumer, 2) == ["a", "b"]
    with pytest.raises(pulsar.MessagesLost, match="2:0 to 2:1"):
        consumer.receive(60_000)
    assert receive_all(consumer, 2) == ["e", "f"]
    assert root.stats()["lostMessages"] == 2 and sum(each["messages"] for each in root.admin.lost_messages("t")) == 2
    assert root.admin.skip_lost("t", "s") == 2
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 0)


def regroup(root, version: int, group_rows: int, topic="t") -> str:
    """Write the file of a publish again in row groups of so many rows, as a large file has them; its path."""
    path = root.path(topic) / TableLog(root.path(topic)).commit(version).added[0].path
    pq.write_table(pq.ParquetFile(path).read(), path, row_group_size=group_rows, write_page_checksum=True)
    return path


def damage_group(path, group: int, column: str = "payload") -> None:
    """Flip bytes in a data page of a column in one row group of a file, which stays as long as it was."""
    metadata = pq.read_metadata(path)
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    chunk = metadata.row_group(group).column(names.index(column))
    end = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset) + (
        chunk.total_compressed_size
    )
    data = bytearray(path.read_bytes())
    for at in range(end - 3, end):
        data[at] ^= 0x5A
    path.write_bytes(data)


def publish_damaged(root) -> str:
    """a to j in row groups of two; the bytes of e and f are damaged."""
    root.send("abcdefghij")
    path = regroup(root, 1, 2)
    damage_group(path, 2)
    return str(path).removeprefix(f"{root.path()}/")


DAMAGED = "1:4 to 1:5 of the topic"


@pytest.mark.parametrize("options", [{}, SHARED, {"receiver_queue_size": 2, **SHARED}])
def test_a_damaged_page_loses_its_messages_and_no_others(root, options):
    root.subscribe(**options).close()
    file = publish_damaged(root)
    consumer, received, lost = root.subscribe(**options), [], []
    while len(received) < 8 or not lost:
        try:
            received += receive(consumer, 1)
        except pulsar.MessagesLost as error:
            lost.append(error)
    assert sorted(received) == list("abcdghij")
    assert [(error.ranges, error.path) for error in lost] == [(((4, 5),), file)] and DAMAGED in str(lost[0])
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 2)
    assert [
        (each["first_position"], each["last_position"], each["messages"], each["path"])
        for each in root.admin.lost_messages("t")
    ] == [(4, 5, 2, file)]
    assert root.admin.skip_lost("t", "s") == 2
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 0)
    assert root.admin.skip_lost("t", "s") == 0
    root.send(["k"])
    assert receive_all(consumer, 1) == ["k"]


@pytest.mark.parametrize("column", ["payload", "entry_id", "publish_time", "properties.key_value.key"])
def test_whichever_column_is_damaged_its_row_group_is_lost(root, column):
    producer = root.client.create_producer("t")
    for letter in "abcdefghij":
        producer.send_async(letter.encode(), None, properties={"name": letter})
    producer.close()
    damage_group(regroup(root, 1, 2), 2, column)
    reader = root.client.create_reader("t", pulsar.MessageId.earliest)
    assert [reader.read_next(60_000).data() for _ in range(8)] == [bytes([letter]) for letter in b"abcdghij"]
    with pytest.raises(pulsar.MessagesLost, match=DAMAGED):
        reader.read_next(60_000)


def test_a_footer_whose_bytes_changed_loses_the_file(root, only_in_files):
    root.subscribe().close()
    root.send("ab")
    root.send("c")
    path = root.path() / TableLog(root.path()).commit(1).added[0].path
    data = path.read_bytes()
    path.write_bytes(data[:-60] + bytes(byte ^ 0x5A for byte in data[-60:-8]) + data[-8:])
    consumer = root.subscribe()
    with pytest.raises(pulsar.MessagesLost, match="1:0 to 1:1"):
        consumer.receive(60_000)
    assert receive(consumer, 1) == ["c"]
    assert sum(each["messages"] for each in root.admin.lost_messages("t")) == 2


def test_a_damaged_page_of_a_batch_loses_a_part_of_it(root):
    root.subscribe(**SHARED).close()
    root.send(range(6), batching_enabled=True, batching_max_messages=3, batching_max_publish_delay_ms=5000)
    damage_group(regroup(root, 1, 2), 1)
    consumer, received = root.subscribe(**SHARED), []
    received += receive(consumer, 4)
    with pytest.raises(pulsar.MessagesLost, match="1:0, 1:1"):
        consumer.receive(60_000)
    assert received == ["0", "1", "4", "5"]
    root.admin.skip_lost("t", "s")
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 0)


def test_peek_shows_what_is_there_and_names_what_is_not(root):
    root.subscribe().close()
    publish_damaged(root)
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 10)
    assert [message.data() for message in root.admin.peek_messages("t", "s", 4)] == [b"a", b"b", b"c", b"d"]
    assert root.admin.get_message_by_id("t", 1, 6).data() == b"g"
    with pytest.raises(pulsar.MessagesLost, match="1:5 of the topic"):
        root.admin.get_message_by_id("t", 1, 5)


def test_of_damaged_messages_no_letter_is_written_and_the_others_have_theirs(root):
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    options = {**SHARED, "dead_letter_policy": policy, "negative_ack_redelivery_delay_ms": 50}
    consumer = root.subscribe(**options)
    root.send("abcdefghij")
    path = regroup(root, 1, 2)
    for redelivery_count in (0, 1):
        messages = [consumer.receive(60_000) for _ in range(10)]  # what it has decoded once, it keeps
        assert {message.redelivery_count() for message in messages} == {redelivery_count}
        if not redelivery_count:
            damage_group(path, 2)
        for message in messages:
            consumer.negative_acknowledge(message)
    letters = root.client.create_reader("t-s-DLQ", pulsar.MessageId.earliest)
    assert sorted(letters.read_next(60_000).data() for _ in range(8)) == [bytes([letter]) for letter in b"abcdghij"]
    eventually(lambda: root.stats()["subscriptions"]["s"]["waitingLetters"] == 2)


def test_damaged_deliver_times_hold_nobody_up(root):
    root.subscribe(**SHARED).close()
    producer = root.client.create_producer("t")
    with root.broker.paused():
        producer.send(b"late", deliver_after=timedelta(days=1))
        damage_group(regroup(root, 1, 1), 0, "deliver_at_time")
        producer.send(b"now")
    consumer = root.subscribe(**SHARED)
    with pytest.raises(pulsar.MessagesLost):
        consumer.receive(60_000)
    assert receive(consumer, 1) == ["now"]


def test_a_failing_disk_loses_nothing(root, monkeypatch, only_in_files):
    """It may read the file a moment later."""
    root.send("ab")
    is_failing = True

    def read_or_fail(self, *arguments, **options):
        if is_failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(self, *arguments, **options)

    read = pq.ParquetFile.read_row_group
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read_or_fail)
    reader = root.client.create_reader("t", pulsar.MessageId.earliest)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        reader.read_next(60_000)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        root.admin.lost_messages("t")
    is_failing = False
    reader.seek(pulsar.MessageId.earliest)
    assert [reader.read_next(60_000).data() for _ in range(2)] == [b"a", b"b"]
    assert root.admin.lost_messages("t") == []


def test_a_reader_goes_on_behind_what_is_lost(root):
    for values in ("ab", "cd", "ef"):
        root.send(values)
    lose(root, 2)
    reader = root.client.create_reader("t", pulsar.MessageId.earliest)
    assert [reader.read_next(60_000).data() for _ in range(2)] == [b"a", b"b"]
    with pytest.raises(pulsar.MessagesLost):
        reader.read_next(60_000)
    assert [reader.read_next(60_000).data() for _ in range(2)] == [b"e", b"f"]


def test_a_batch_receive_gives_what_it_has_before_it_says_what_is_lost(root):
    root.subscribe().close()
    for values in ("ab", "cd", "ef"):
        root.send(values)
    lose(root, 2)
    policy = pulsar.ConsumerBatchReceivePolicy(10, 10_000_000, 1500)
    consumer = root.subscribe(batch_receive_policy=policy)
    assert [message.data() for message in consumer.batch_receive()] == [b"a", b"b"]
    with pytest.raises(pulsar.MessagesLost):
        consumer.batch_receive()
    assert [message.data() for message in consumer.batch_receive()] == [b"e", b"f"]


@pytest.mark.parametrize(
    ("runs", "options"),
    [(1, {}), (2, {"batching_enabled": True, "batching_max_messages": 3, "batching_max_publish_delay_ms": 100})],
)
def test_a_file_that_is_lost_before_it_was_numbered(root, runs, options):
    root.subscribe().close()
    with root.broker.paused():
        root.send("abcd", **options)
        lose(root, 1)
        root.send("e")
    consumer = root.subscribe()
    for _ in range(runs):
        with pytest.raises(pulsar.MessagesLost, match="1:"):
            consumer.receive(60_000)
    assert receive_all(consumer, 1) == ["e"]
    root.admin.skip_lost("t", "s")
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 0)


def test_a_lost_file_of_delayed_messages_holds_nobody_up(root):
    root.subscribe(**SHARED).close()
    producer = root.client.create_producer("t")
    with root.broker.paused():
        producer.send(b"late", deliver_after=timedelta(days=1))
        lose(root, 1)
        producer.send(b"now")
    consumer = root.subscribe(**SHARED)
    with pytest.raises(pulsar.MessagesLost):
        consumer.receive(60_000)
    assert receive_all(consumer, 1) == ["now"]


def test_nothing_is_lost_after_optimize_and_vacuum(root):
    for value in "abc":
        root.send(value)
    root.subscribe()
    root.table().optimize.compact()
    root.table().vacuum(0, dry_run=False, enforce_retention_duration=False)
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 3)
    assert root.admin.lost_messages("t") == [] and root.admin.skip_lost("t", "s") == 0


def test_where_all_files_are_sound_no_run_is_read(root, monkeypatch):
    """There may be a million of them."""
    root.subscribe().close()
    for values in ("ab", "cd"):
        root.send(values)
    monkeypatch.setattr(storage_lost, "runs_from", None)
    assert root.admin.lost_messages("t") == [] and root.admin.skip_lost("t", "s") == 0
    lose(root, 1)
    with pytest.raises(TypeError):
        root.admin.lost_messages("t")
