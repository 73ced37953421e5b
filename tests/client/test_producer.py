"""Sending: ids, batches, routing, sequence ids, limits, and what bad input gets."""

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.client.sending import publisher as publisher_module
from pulsar_spark.protocol.topics.routing import partition_for_key
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import create_topic, delete_topic
from tests.support.waiting import eventually

BATCHING = dict(batching_enabled=True, batching_max_publish_delay_ms=60_000)


def read_all(client, topic: str, count: int) -> list[pulsar.Message]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = [reader.read_next(60_000) for _ in range(count)]
    assert not reader.has_message_available()
    return messages


def test_send_returns_the_id_of_the_message(lonely_client):
    producer = lonely_client.create_producer("t")
    ids = [producer.send(f"m{number}".encode()) for number in range(3)]
    assert [str(message_id) for message_id in ids] == ["(1,0,-1,-1)", "(2,0,-1,-1)", "(3,0,-1,-1)"]
    assert [(message.message_id(), message.data()) for message in read_all(lonely_client, "t", 3)] == list(
        zip(ids, [b"m0", b"m1", b"m2"])
    )


def test_a_commit_waits_for_the_callers_that_were_answered_but_not_for_long(lonely_client):
    producer, sent = lonely_client.create_producer("t"), []
    publisher = producer._publisher
    producer.send(b"x")
    eventually(lambda: publisher._expected == 1)
    publisher._expected, publisher._expected_until = 2, time.monotonic() + 300
    for payload in (b"a", b"b"):
        producer.send_async(payload, lambda result, message_id: sent.append(str(message_id)))
    eventually(lambda: sent == ["(2,0,-1,-1)", "(2,1,-1,-1)"])
    eventually(lambda: publisher._expected == 0)  # nobody waits for what is sent with a callback
    publisher._expected, publisher._expected_until = 2, time.monotonic() + 0.05
    assert producer.send(b"y").ledger_id() == 3, "the other one did not come"
    publisher._expected, publisher._expected_until = 2, time.monotonic() + 300
    producer.send_async(b"z", None)
    producer.close()
    assert TableLog(publisher._topic.path).latest() == 4, "nobody comes to a producer that is closing"


def test_everything_sent_along_comes_back(lonely_client):
    producer = lonely_client.create_producer("t", producer_name="me")
    producer.send(b"x", properties={"p": "v"}, partition_key="k", ordering_key="o", event_timestamp=99, sequence_id=7)
    producer.send(None)
    producer.send(b"")
    full, null, empty = read_all(lonely_client, "t", 3)
    assert (
        full.properties(),
        full.partition_key(),
        full.ordering_key(),
        full.event_timestamp(),
        full.sequence_id(),
        full.producer_name(),
    ) == ({"p": "v"}, "k", "o", 99, 7, "me")
    assert (full.topic_name(), full.redelivery_count(), full.has_null_value()) == (
        "persistent://public/default/t",
        0,
        False,
    )
    assert (
        null.has_null_value()
        and null.data() == b""
        and null.properties() == {}
        and null.partition_key() == ""
        and null.event_timestamp() == 0
    )
    assert not empty.has_null_value() and empty.data() == b""
    assert abs(full.publish_timestamp() - null.publish_timestamp()) < 60_000


def test_messages_sent_while_a_commit_is_under_way_share_the_next(lonely_client, monkeypatch):
    entered, go_on, append = threading.Event(), threading.Event(), AppendTable.append

    def slow_append(self, rows):
        entered.set()
        go_on.wait(60)
        return append(self, rows)

    monkeypatch.setattr(AppendTable, "append", slow_append)
    producer, ids = lonely_client.create_producer("t"), []
    producer.send_async(b"first", lambda result, message_id: ids.append(str(message_id)))
    assert entered.wait(60)
    for _ in range(3):
        producer.send_async(b"later", lambda result, message_id: ids.append(str(message_id)))
    go_on.set()
    producer.flush()
    assert ids == ["(1,0,-1,-1)", "(2,0,-1,-1)", "(2,1,-1,-1)", "(2,2,-1,-1)"]


def test_batches_share_an_entry(lonely_client):
    producer, ids = lonely_client.create_producer("t", batching_max_messages=3, **BATCHING), []
    for number in range(5):
        producer.send_async(str(number).encode(), lambda result, message_id: ids.append((str(result), str(message_id))))
    producer.flush()
    places = [message_id for _, message_id in ids]
    assert {result for result, _ in ids} == {"Result.Ok"}
    assert [place.rsplit(",", 1)[1] for place in places] == ["0)", "1)", "2)", "0)", "1)"]
    assert [message.message_id().batch_index() for message in read_all(lonely_client, "t", 5)] == [0, 1, 2, 0, 1]


def test_a_batch_closes_after_its_delay(lonely_client):
    producer, ids = lonely_client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=20), []
    for _ in range(2):
        producer.send_async(b"x", lambda result, message_id: ids.append(message_id))
    assert [message_id.batch_index() for message_id in eventually(lambda: len(ids) == 2 and ids)] == [0, 1]


def test_a_blocking_send_does_not_wait_for_the_delay(lonely_client):
    assert lonely_client.create_producer("t", **BATCHING).send(b"x").batch_index() == -1


def test_a_delayed_message_is_not_batched_and_keeps_its_place(lonely_client):
    producer, ids = lonely_client.create_producer("t", **BATCHING), []
    for options in ({}, {}, {"deliver_after": timedelta(hours=1)}, {}, {}):
        producer.send_async(b"x", lambda result, message_id: ids.append(message_id), **options)
    producer.flush()
    assert [(message_id.entry_id(), message_id.batch_index()) for message_id in ids][:3] == [(0, 0), (0, 1), (1, -1)]
    assert [message_id.batch_index() for message_id in ids][3:] == [0, 1]
    delayed = [message._field("deliver_at_time") is not None for message in read_all(lonely_client, "t", 5)]
    assert delayed == [False, False, True, False, False]


def test_key_based_batching(lonely_client):
    producer = lonely_client.create_producer("t", batching_type=pulsar.BatchingType.KeyBased, **BATCHING)
    for number in range(6):
        producer.send_async(str(number).encode(), None, partition_key=f"k{number % 2}")
    producer.flush()
    messages = read_all(lonely_client, "t", 6)
    assert [(message.message_id().entry_id(), message.data()) for message in messages] == [
        (0, b"0"),
        (0, b"2"),
        (0, b"4"),
        (1, b"1"),
        (1, b"3"),
        (1, b"5"),
    ]


def test_routing(lonely_client):
    create_topic(lonely_client._layout, "p4", 4)
    mode = pulsar.PartitionsRoutingMode

    def partitions(count, **options):
        send = options.pop("send", {})
        producer = lonely_client.create_producer("p4", **options)
        return [producer.send(b"x" * number, **send).partition() for number in range(count)]

    turns = partitions(8)
    assert turns == [(turns[0] + number) % 4 for number in range(8)]
    assert len(set(partitions(5, message_routing_mode=mode.UseSinglePartition))) == 1
    assert set(partitions(3, send={"partition_key": "key-10"})) == {3}
    java = pulsar.HashingScheme.JavaStringHash
    assert set(partitions(3, send={"partition_key": "key-1"}, hashing_scheme=java)) == {
        partition_for_key("key-1", 4, java)
    }
    assert partitions(5, message_router=lambda message, count: message.length() % count) == [0, 1, 2, 3, 0]
    assert lonely_client.get_topic_partitions("p4") == [
        f"persistent://public/default/p4-partition-{number}" for number in range(4)
    ]


def test_one_partition_by_its_name(lonely_client):
    create_topic(lonely_client._layout, "p2", 2)
    producer = lonely_client.create_producer("p2-partition-1")
    assert producer.send(b"x").partition() == 1
    assert producer.topic() == "persistent://public/default/p2-partition-1"
    assert read_all(lonely_client, "p2-partition-1", 1)[0].topic_name() == producer.topic()
    with pytest.raises(pulsar.TopicNotFound):
        lonely_client.create_producer("p2-partition-2")


def test_sequence_ids(lonely_client):
    producer = lonely_client.create_producer("t", initial_sequence_id=10)
    assert producer.last_sequence_id() == 10
    producer.send(b"x")
    assert producer.last_sequence_id() == 11
    producer.send(b"x", sequence_id=50)
    assert producer.last_sequence_id() == 50
    assert lonely_client.create_producer("u").last_sequence_id() == -1
    assert [message.sequence_id() for message in read_all(lonely_client, "t", 2)] == [11, 50]


class StuckTable:
    """Appends wait until let go."""

    def __init__(self, monkeypatch):
        self.entered, self.go_on, append = threading.Event(), threading.Event(), AppendTable.append

        def stuck(table, rows):
            self.entered.set()
            self.go_on.wait(60)
            return append(table, rows)

        monkeypatch.setattr(AppendTable, "append", stuck)


def test_a_full_queue_refuses_or_blocks(lonely_client, monkeypatch):
    stuck, results = StuckTable(monkeypatch), []
    producer = lonely_client.create_producer("t", max_pending_messages=2)
    for _ in range(3):
        producer.send_async(b"x", lambda result, message_id: results.append(result))
    assert results == [pulsar.Result.ProducerQueueIsFull]
    with pytest.raises(pulsar.ProducerQueueIsFull):
        producer.send(b"x")
    blocking = lonely_client.create_producer("t", max_pending_messages=2, block_if_queue_full=True)
    sender = threading.Thread(target=lambda: [blocking.send_async(b"x", None) for _ in range(3)], daemon=True)
    sender.start()
    sender.join(0.1)
    assert sender.is_alive()
    stuck.go_on.set()
    sender.join(60)
    assert not sender.is_alive()
    producer.flush()
    assert results == [pulsar.Result.ProducerQueueIsFull, pulsar.Result.Ok, pulsar.Result.Ok]


def test_what_cannot_be_written_in_time_times_out(lonely_client, monkeypatch):
    monkeypatch.setattr(publisher_module, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(AppendTable, "append", lambda self, rows: (_ for _ in ()).throw(OSError("the disk is full")))
    producer = lonely_client.create_producer("t", send_timeout_millis=100)
    with pytest.raises(pulsar.Timeout, match="the disk is full"):
        producer.send(b"x")
    assert producer.last_sequence_id() == -1


def test_what_waits_for_its_turn_until_its_time_is_over_is_not_published(lonely_client, monkeypatch):
    """Whoever sent it was told that it failed, and may send it again."""
    begun, goes_on, ahead, outcomes = threading.Event(), threading.Event(), [0.0], []
    append = AppendTable.append

    def append_late(*arguments):
        begun.set()
        goes_on.wait(60)
        return append(*arguments)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0], time_ns=time.time_ns)
    monkeypatch.setattr(publisher_module, "time", clock)
    monkeypatch.setattr(AppendTable, "append", append_late)
    producer = lonely_client.create_producer("t", send_timeout_millis=60_000)
    producer.send_async(b"first", lambda result, _: outcomes.append(result))
    assert begun.wait(60)
    producer.send_async(b"late", lambda result, _: outcomes.append(result))
    ahead[0] = 61.0
    goes_on.set()
    eventually(lambda: len(outcomes) == 2)
    assert outcomes == [pulsar.Result.Ok, pulsar.Result.Timeout]
    reader = lonely_client.create_reader("t", pulsar.MessageId.earliest)
    assert reader.read_next(60_000).data() == b"first" and not reader.has_message_available()


def test_what_waits_for_its_turn_at_a_shutdown_is_not_published(lonely_client, monkeypatch):
    begun, goes_on, outcomes = threading.Event(), threading.Event(), []
    append = AppendTable.append

    def append_late(*arguments):
        begun.set()
        goes_on.wait(60)
        return append(*arguments)

    monkeypatch.setattr(AppendTable, "append", append_late)
    producer = lonely_client.create_producer("t", producer_name="p")
    producer.send_async(b"first", lambda result, _: outcomes.append(result))
    assert begun.wait(60)
    producer.send_async(b"waits", lambda result, _: outcomes.append(result))
    producer._shutdown()
    assert outcomes == [pulsar.Result.AlreadyClosed]
    goes_on.set()
    eventually(lambda: all("publisher-p" not in thread.name for thread in threading.enumerate()))
    assert outcomes == [pulsar.Result.AlreadyClosed, pulsar.Result.Ok]
    assert [message.data() for message in read_all(lonely_client, "t", 1)] == [b"first"]


def test_a_commit_whose_answer_is_lost_counts_once(lonely_client, monkeypatch):
    append, failures = AppendTable.append, iter([True])

    def append_and_fail(self, rows):
        version = append(self, rows)
        if next(failures, False):
            raise OSError("connection lost")
        return version

    monkeypatch.setattr(AppendTable, "append", append_and_fail)
    producer = lonely_client.create_producer("t")
    assert str(producer.send(b"x")) == "(1,0,-1,-1)"
    assert len(read_all(lonely_client, "t", 1)) == 1


def test_a_commit_that_failed_is_written_again_under_its_publish_id(lonely_client, monkeypatch):
    monkeypatch.setattr(publisher_module, "_RETRY_SECONDS", 0.01)
    append, attempts = AppendTable.append, []

    def fail_first(self, rows):
        attempts.append(rows.column("publish_id")[0].as_py())
        if len(attempts) == 1:
            raise OSError("not now")
        return append(self, rows)

    monkeypatch.setattr(AppendTable, "append", fail_first)
    assert str(lonely_client.create_producer("t").send(b"x")) == "(1,0,-1,-1)"
    assert len(attempts) == 2 and len(set(attempts)) == 1


def test_a_callback_that_raises_stops_nobody(lonely_client, monkeypatch):
    raised, called = [], []
    monkeypatch.setattr(threading, "excepthook", lambda failure: raised.append(failure.exc_type))
    producer = lonely_client.create_producer("t")

    def fail(result, message_id):
        raise ZeroDivisionError

    producer.send_async(b"x", fail)
    producer.send_async(b"y", lambda result, message_id: called.append(result))
    producer.flush()
    assert called == [pulsar.Result.Ok]
    assert eventually(lambda: raised) == [ZeroDivisionError]
    assert producer.send(b"z").ledger_id() >= 1


def test_close_publishes_what_is_pending(lonely_client):
    producer, results = lonely_client.create_producer("t", **BATCHING), []
    for _ in range(3):
        producer.send_async(b"x", lambda result, message_id: results.append(result))
    producer.close()
    assert results == [pulsar.Result.Ok] * 3 and not producer.is_connected()
    with pytest.raises(pulsar.AlreadyClosed):
        producer.send(b"x")
    with pytest.raises(pulsar.AlreadyClosed):
        producer.flush()
    producer.send_async(b"x", lambda result, message_id: results.append(result))
    assert results[-1] is pulsar.Result.AlreadyClosed


@pytest.mark.local_disk
def test_a_deleted_topic_is_not_written_to(lonely_client):
    producer = lonely_client.create_producer("t")
    producer.send(b"x")
    delete_topic(lonely_client._layout, "t")
    with pytest.raises(pulsar.TopicNotFound, match="deleted: create it and its producers again"):
        producer.send(b"x")
    assert Admin(f"delta:{lonely_client._layout.root}").topics("public/default") == []  # not made anew (0.37)
    topic = create_topic(lonely_client._layout, "t")
    with pytest.raises(pulsar.TopicNotFound, match="deleted"):
        producer.send(b"x")
    assert TableLog(topic.path).latest() == 0


@pytest.mark.parametrize(
    "content, options, error",
    [
        ("text", {}, TypeError),
        (bytearray(b"x"), {}, TypeError),
        (5, {}, TypeError),
        (b"x" * (5 * 1024 * 1024 + 1), {}, pulsar.MessageTooBig),
        (b"x", {"properties": {"a": 1}}, ValueError),
        (b"x", {"properties": [("a", "b")]}, ValueError),
        (b"x", {"partition_key": b"k"}, ValueError),
        (b"x", {"partition_key": "\ud800"}, ValueError),
        (b"x", {"event_timestamp": -1}, ValueError),
        (b"x", {"event_timestamp": 1 << 62}, ValueError),
        (b"x", {"event_timestamp": 1.5}, ValueError),
        (b"x", {"sequence_id": 1 << 63}, ValueError),
        (b"x", {"sequence_id": -1}, ValueError),
        (b"x", {"deliver_at": "soon"}, ValueError),
        (b"x", {"deliver_after": 5}, ValueError),
        (b"x", {"disable_replication": 1}, ValueError),
    ],
)
def test_bad_input_is_refused_and_harms_nobody(lonely_client, content, options, error):
    producer = lonely_client.create_producer("t")
    with pytest.raises(error):
        producer.send(content, **options)
    assert str(producer.send(b"good")) == "(1,0,-1,-1)"


def test_the_largest_message_fits(lonely_client):
    lonely_client.create_producer("t").send(b"x" * (5 * 1024 * 1024))
    assert read_all(lonely_client, "t", 1)[0].length() == 5 * 1024 * 1024


def test_producers_in_parallel_lose_nothing(lonely_client):
    producers = [lonely_client.create_producer("t") for _ in range(3)]

    def send(producer, name):
        for number in range(10):
            producer.send(f"{name}-{number}".encode())

    threads = [threading.Thread(target=send, args=(producer, name)) for name, producer in enumerate(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = [message.data().decode() for message in read_all(lonely_client, "t", 30)]
    assert sorted(values) == sorted(f"{name}-{number}" for name in range(3) for number in range(10))
    for name in range(3):
        mine = [value for value in values if value.startswith(f"{name}-")]
        assert mine == [f"{name}-{number}" for number in range(10)]


def test_processes_in_parallel_lose_nothing(lonely_client, service_url, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import sys
import pulsar_spark as pulsar
client = pulsar.Client(sys.argv[1])
producer = client.create_producer("t", max_pending_messages=0)
for number in range(200):
    producer.send_async(f"{sys.argv[2]}-{number}".encode(), None)
    if number % 20 == 0:
        producer.flush()
client.close()
""")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen([sys.executable, str(script), service_url, str(name)], env=environment) for name in range(2)
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    values = [message.data().decode() for message in read_all(lonely_client, "t", 400)]
    for name in range(2):
        assert [value for value in values if value.startswith(f"{name}-")] == [
            f"{name}-{number}" for number in range(200)
        ]


def test_a_message_that_is_too_big_is_told_to_the_callback(lonely_client):
    told = []
    producer = lonely_client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    producer.send_async(b"first", lambda *answer: told.append(answer))
    producer.send_async(b"x" * (5 * 1024 * 1024 + 1), lambda *answer: told.append(answer))
    producer.send_async(b"x" * (5 * 1024 * 1024 + 1), None)
    assert told == [(pulsar.Result.MessageTooBig, None)]
    producer.flush()
    assert [(str(result), str(message_id)) for result, message_id in told[1:]] == [("Result.Ok", "(1,0,-1,-1)")]
    with pytest.raises(ValueError, match="event_timestamp"):
        producer.send_async(b"x", lambda *answer: told.append(answer), event_timestamp=-1)
    with pytest.raises(ValueError, match="callback: a function expected, not str"):
        producer.send_async(b"x", "told")
    assert len(told) == 2


@pytest.mark.parametrize("scheme", list(pulsar.HashingScheme))
def test_the_partition_of_a_key_is_told(lonely_client, scheme):
    admin = Admin(f"delta:{lonely_client._layout.root}")
    admin.create_partitioned_topic("p", 5)
    producer = lonely_client.create_producer("p", hashing_scheme=scheme)
    for key in ("a", "b", "Order-3459134", "grüße"):
        partition = producer.send(b"x", partition_key=key).partition()
        assert pulsar.partition_for_key(key, 5, scheme) == producer.partition_for_key(key) == partition
        assert pulsar.partition_for_key(key, 5, scheme.name) == partition
        assert admin.partition_for_key("p", key, scheme) == f"persistent://public/default/p-partition-{partition}"
    assert lonely_client.create_producer("p-partition-3").partition_for_key("a") == 3
    assert lonely_client.create_producer("t").partition_for_key("a") == -1
    assert admin.partition_for_key("t", "a") == "persistent://public/default/t"
    for wrong in ((None, 5), (b"a", 5), ("a", 0), ("a", -1), ("a", True), ("a", 1.5), ("a", 5, "Boost"), ("a", 5, 1)):
        with pytest.raises(ValueError):
            pulsar.partition_for_key(*wrong)


def test_a_callback_that_is_false_is_told_the_id(lonely_client):
    class Answers(list):
        def __call__(self, result, message_id) -> None:
            self.append(message_id)

    producer, answers = lonely_client.create_producer("t"), Answers()
    producer.send_async(b"x", answers)
    producer.flush()
    eventually(lambda: answers)
    assert [str(each) for each in answers] == ["(1,0,-1,-1)"]
