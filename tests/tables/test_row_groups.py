"""What it costs to look at one message of a large file: one row group, whoever looks."""

import os
from datetime import datetime, timedelta, timezone

import pyarrow.parquet as pq
import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.table_specs import MESSAGES
from tests.support.waiting import eventually
from tests.tables.conftest import SHARED

GROUPS, GROUP_ROWS, PAYLOAD = 32, 32, 64 * 1024
NOW = datetime.now(timezone.utc)


class Counted:
    """The row groups of one file that were read, and their bytes."""

    def __init__(self, path):
        self.path, self.groups, self.bytes = str(path), set(), 0

    def forget(self):
        self.groups, self.bytes = set(), 0


@pytest.fixture
def large(root, monkeypatch) -> Counted:
    """A file of 64 MB in 32 row groups, and what is read of it. Every tenth message is put off by a day."""
    root.subscribe(**SHARED).close()
    rows = [
        dict(
            publish_id="0" * 32,
            entry_id=entry,
            batch_size=1,
            partition=-1,
            payload=os.urandom(PAYLOAD),
            publish_time=NOW,
            deliver_at_time=NOW + timedelta(days=1) if entry % 10 == 0 else None,
        )
        for entry in range(GROUPS * GROUP_ROWS)
    ]
    with root.broker.paused():
        table = AppendTable(root.path())
        file = root.path() / TableLog(root.path()).commit(table.append(MESSAGES.rows(rows))).added[0].path
        pq.write_table(pq.ParquetFile(file).read(), file, row_group_size=GROUP_ROWS)
    counted, read, read_all = Counted(file), pq.ParquetFile.read_row_group, pq.ParquetFile.read
    opened, open_file = {}, pq.ParquetFile.__init__

    def opening(self, source, *arguments, **options):
        opened[id(self)] = str(source)
        open_file(self, source, *arguments, **options)

    def reading(self, group, columns=None, **options):
        found = read(self, group, columns=columns, **options)
        if opened[id(self)] == counted.path:
            counted.groups.add(group)
            counted.bytes += found.nbytes
        return found

    def reading_all(self, *arguments, **options):
        assert opened[id(self)] != counted.path, "the whole file was read"
        return read_all(self, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", opening)
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", reading)
    monkeypatch.setattr(pq.ParquetFile, "read", reading_all)
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == GROUPS * GROUP_ROWS)
    counted.forget()
    return counted


def assert_one_group(counted: Counted, group: int, most=1.1 * GROUP_ROWS * PAYLOAD) -> None:
    assert counted.groups == {group} and counted.bytes <= most
    counted.forget()


def test_one_message_by_its_id_and_one_that_is_peeked_at(root, large):
    assert root.admin.get_message_by_id("t", 1, 700).length() == PAYLOAD
    assert_one_group(large, 700 // GROUP_ROWS)
    (peeked,) = root.admin.peek_messages("t", "s", 1, at=401)
    assert peeked.message_id().entry_id() == 401
    assert_one_group(large, 401 // GROUP_ROWS)


def test_the_last_message_of_a_topic(root, large):
    reader = root.client.create_reader("t", pulsar.MessageId.latest, start_message_id_inclusive=True)
    assert reader.read_next(60_000).message_id().entry_id() == GROUPS * GROUP_ROWS - 1
    assert_one_group(large, GROUPS - 1)


def test_what_a_round_hands_out_next_asks_for_no_more_deliver_times(root, large):
    consumer = root.subscribe(receiver_queue_size=1, **SHARED)
    eventually(lambda: consumer._receiver._arrived)
    assert large.groups <= {0} and large.bytes <= GROUP_ROWS * 100, "they were read when the run was numbered"


def test_one_letter(root, large):
    options = {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(1), "negative_ack_redelivery_delay_ms": 20}
    consumer = root.subscribe(receiver_queue_size=1, **SHARED, **options)
    for redelivery_count in (0, 1):
        message = consumer.receive(60_000)
        while message.message_id().entry_id() != 1:
            consumer.acknowledge(message)
            message = consumer.receive(60_000)
        assert message.redelivery_count() == redelivery_count
        large.forget()
        consumer.negative_acknowledge(message)
    letters = root.client.create_reader("t-s-DLQ", pulsar.MessageId.earliest)
    assert letters.read_next(60_000).data() == message.data()
    assert_one_group(large, 0, most=3 * GROUP_ROWS * PAYLOAD)
