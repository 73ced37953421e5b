"""Producers that send what is too big in chunks (semantics 1.1-1.7)."""

import threading

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.client.sending import publisher as publisher_module
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.support.waiting import DEADLINE_SECONDS, eventually

CHUNKS = dict(chunking_enabled=True, chunk_max_message_size=4)
CHUNK_COLUMNS = ["uuid", "chunk_id", "num_chunks_from_msg", "total_chunk_msg_size", "payload"]


def rows_of(layout: Layout, topic: str, *columns: str) -> list[tuple]:
    """The columns of all messages of a topic, in order."""
    rows = dataset_of(read_topic(layout, topic).path).to_table(columns=["publish_id", "entry_id", *columns])
    rows = rows.sort_by([("publish_id", "ascending"), ("entry_id", "ascending")]).select(columns)
    return list(zip(*(column.to_pylist() for column in rows.columns)))


class OneByOne:
    """Commits one entry each, and stops before commit *stop* until it may go on, or fails it."""

    def __init__(self, monkeypatch, stop: int = -1, error: Exception | None = None):
        self.go_on, self.commits, self._stop, self._error = threading.Event(), 0, stop, error
        monkeypatch.setattr(publisher_module, "MAX_COMMIT_MESSAGES", 1)
        append = AppendTable.append

        def appended(table, rows):
            self.commits += 1
            if self.commits == self._stop:
                self.go_on.wait(DEADLINE_SECONDS)
                if self._error is not None:
                    raise self._error
            return append(table, rows)

        monkeypatch.setattr(AppendTable, "append", appended)


def test_a_payload_is_cut_into_chunks_that_say_everything_else_the_message_says(lonely_client):
    producer = lonely_client.create_producer("t", producer_name="p", **CHUNKS)
    producer.send(b"1234")
    said = dict(properties={"a": "b"}, partition_key="k", ordering_key="o", event_timestamp=5, deliver_at=7)
    message_id = producer.send(b"123456789", sequence_id=9, **said)
    assert rows_of(lonely_client._layout, "t", *CHUNK_COLUMNS) == [
        (None, None, None, None, b"1234"),
        ("p-9", 0, 3, 9, b"1234"),
        ("p-9", 1, 3, 9, b"5678"),
        ("p-9", 2, 3, 9, b"9"),
    ]
    repeated = ["producer_name", "sequence_id", "partition_key", "ordering_key", "properties", "event_time"]
    chunks = rows_of(lonely_client._layout, "t", *repeated, "deliver_at_time", "sticky_key_hash", "batch_size")[1:]
    assert chunks == [chunks[0]] * 3 and chunks[0][:5] == ("p", 9, "k", "o", [("a", "b")])
    assert str(message_id) == "(2,0,-1,-1);(2,2,-1,-1)"
    assert producer.last_sequence_id() == 9


def test_what_fits_is_sent_in_one_piece(lonely_client):
    producer = lonely_client.create_producer("t", **CHUNKS)
    ids = [producer.send(payload) for payload in (b"", None, b"1234")]
    assert [message_id.first_chunk_message_id() for message_id in ids] == [None] * 3
    assert rows_of(lonely_client._layout, "t", *CHUNK_COLUMNS) == [
        (None, None, None, None, payload) for payload in (b"", None, b"1234")
    ]


def test_without_a_limit_of_its_own_chunks_are_as_large_as_messages_may_be(client, broker, service_url):
    Admin(service_url).set_policy("public/default", "max_message_size", 1000)
    producer = client.create_producer("t", producer_name="p", chunking_enabled=True)
    producer.send(b"x" * 2500, properties={"a": "b" * 100})
    sizes = [len(payload) for (payload,) in rows_of(client._layout, "t", "payload")]
    assert len(set(sizes[:-1])) == 1 and sum(sizes) == 2500
    assert 700 < sizes[0] < 1000 - 100, "what the properties take is left for them"
    few = client.create_producer("t", chunking_enabled=True, chunk_max_message_size=5000)
    assert few.send(b"x" * 900).first_chunk_message_id() is not None, "the policy goes before the argument"
    with pytest.raises(pulsar.InvalidMessage, match="the metadata alone takes .* of the 1000 bytes"):
        producer.send(b"x", properties={"a": "b" * 1000})
    told = []
    producer.send_async(b"x", lambda *answer: told.append(answer), partition_key="k" * 1000)
    assert told == [(pulsar.Result.InvalidMessage, None)]
    assert producer.send(b"small").first_chunk_message_id() is None


def test_the_policy_says_what_is_too_big_without_chunks(client, broker, service_url):
    admin, topic = Admin(service_url), "persistent://public/default/t"
    admin.create_topic(topic)
    admin.set_policy("public/default", "max_message_size", 10)
    admin.set_policy(topic, "max_message_size", 20)
    producers = [client.create_producer("t"), client.create_producer("t", batching_enabled=True)]
    for producer in producers:
        with pytest.raises(pulsar.MessageTooBig, match="21 bytes is above the maximum of 20: .*chunking_enabled=True"):
            producer.send(b"x" * 21)
        assert producer.send(b"x" * 20) is not None
    with pytest.raises(pulsar.MessageTooBig, match="maximum of 10"):
        client.create_producer("other").send(b"x" * 11)
    for wrong in ("0", "-1", str((1 << 30) + 1), "5 MiB"):
        with pytest.raises(pulsar.InvalidConfiguration, match="max_message_size"):
            admin.set_policy(topic, "max_message_size", wrong)


def test_a_batch_is_no_larger_than_a_message_may_be(lonely_client):
    options = dict(batching_max_allowed_size_in_bytes=1 << 30, batching_max_publish_delay_ms=60_000)
    producer, ids = lonely_client.create_producer("t", batching_enabled=True, **options), []
    for _ in range(3):
        producer.send_async(bytes(2 << 20), lambda result, message_id: ids.append(message_id))
    producer.flush()
    assert [message_id.batch_index() for message_id in ids] == [0, 1, -1]


def test_chunks_of_a_message_go_to_one_partition(lonely_client):
    create_topic(lonely_client._layout, "p3", 3)
    asked = []
    router = lambda message, count: asked.append(message.data()) or len(asked) % count  # noqa: E731
    producer = lonely_client.create_producer("p3", message_router=router, **CHUNKS)
    ids = [producer.send(b"123456789") for _ in range(3)]
    assert [message_id.partition() for message_id in ids] == [1, 2, 0] and asked == [b"123456789"] * 3
    assert [message_id.first_chunk_message_id().partition() for message_id in ids] == [1, 2, 0]


def test_each_chunk_needs_a_place_in_the_queue(lonely_client, monkeypatch):
    stuck, told = OneByOne(monkeypatch, stop=1), []
    producer = lonely_client.create_producer("t", max_pending_messages=3, **CHUNKS)
    producer.send_async(b"one", None)
    producer.send_async(b"123456789", lambda *answer: told.append(answer))
    assert told == [(pulsar.Result.ProducerQueueIsFull, None)], "two places are not enough for three chunks"
    producer.send_async(b"12345678", lambda *answer: told.append(answer))
    producer.send_async(b"more", lambda *answer: told.append(answer))
    assert [result for result, _ in told[1:]] == [pulsar.Result.ProducerQueueIsFull]
    stuck.go_on.set()
    producer.flush()
    assert [payload for (payload,) in rows_of(lonely_client._layout, "t", "payload")] == [b"one", b"1234", b"5678"]
    assert told[2:] == [(pulsar.Result.Ok, pulsar.MessageId(-1, 3, 0))]


def test_a_message_of_more_chunks_than_places_goes_on_as_places_come_free(lonely_client, monkeypatch):
    commits = OneByOne(monkeypatch)
    producer = lonely_client.create_producer("t", max_pending_messages=2, block_if_queue_full=True, **CHUNKS)
    message_id = producer.send(b"x" * 40)
    assert (str(message_id), commits.commits) == ("(1,0,-1,-1);(10,0,-1,-1)", 10)


def test_the_callback_comes_once_when_the_last_chunk_is_written(lonely_client, monkeypatch):
    stuck, told = OneByOne(monkeypatch, stop=3), []
    producer = lonely_client.create_producer("t", **CHUNKS)
    producer.send_async(b"123456789", lambda *answer: told.append(answer))
    eventually(lambda: stuck.commits == 3)
    assert told == []
    stuck.go_on.set()
    producer.flush()
    ((result, message_id),) = told
    assert (result, str(message_id)) == (pulsar.Result.Ok, "(1,0,-1,-1);(3,0,-1,-1)")


def test_when_a_chunk_fails_the_message_fails_once_and_no_more_of_it_is_written(lonely_client, monkeypatch):
    failing, told = OneByOne(monkeypatch, stop=2, error=pulsar.TopicNotFound("gone")), []
    producer = lonely_client.create_producer("t", producer_name="p", **CHUNKS)
    producer.send_async(b"x" * 40, lambda *answer: told.append(answer))
    producer.send_async(b"next", lambda *answer: told.append(answer))
    failing.go_on.set()
    producer.flush()
    assert told == [(pulsar.Result.TopicNotFound, None), (pulsar.Result.Ok, pulsar.MessageId(-1, 2, 0))]
    uuids_and_chunks = rows_of(lonely_client._layout, "t", "uuid", "chunk_id")
    assert uuids_and_chunks == [("p-0", 0), (None, None)]
    again = producer.send(b"x" * 8, sequence_id=0)
    assert str(again) == "(3,0,-1,-1);(4,0,-1,-1)", "what is sent again has the same uuid and begins anew"
    assert rows_of(lonely_client._layout, "t", "uuid", "chunk_id")[2:] == [("p-0", 0), ("p-0", 1)]


def test_a_chunk_whose_commit_is_unclear_is_written_again_as_the_same_chunk(lonely_client, monkeypatch):
    monkeypatch.setattr(publisher_module, "_RETRY_SECONDS", 0.01)
    OneByOne(monkeypatch, stop=2, error=OSError("the disk is full")).go_on.set()
    producer = lonely_client.create_producer("t", producer_name="p", **CHUNKS)
    assert str(producer.send(b"123456789")) == "(1,0,-1,-1);(3,0,-1,-1)"
    assert [row[:2] for row in rows_of(lonely_client._layout, "t", *CHUNK_COLUMNS)] == [
        ("p-0", 0),
        ("p-0", 1),
        ("p-0", 2),
    ]


def test_ctrl_c_between_chunks_gives_the_message_up(lonely_client, monkeypatch):
    stuck, told = OneByOne(monkeypatch, stop=2), []
    producer = lonely_client.create_producer("t", max_pending_messages=2, block_if_queue_full=True, **CHUNKS)
    wait = producer._condition.wait

    def interrupted(timeout=None):
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return wait(timeout)

    monkeypatch.setattr(producer._condition, "wait", interrupted)
    with pytest.raises(pulsar.Interrupted):
        producer.send_async(b"x" * 40, lambda *answer: told.append(answer))
    monkeypatch.setattr(producer._condition, "wait", wait)
    stuck.go_on.set()
    producer.send(b"next")
    chunks = rows_of(lonely_client._layout, "t", "chunk_id", "payload")
    assert chunks[-1] == (None, b"next") and len(chunks) <= 4 and told == []


@pytest.mark.parametrize("is_shutdown", [False, True])
def test_a_producer_that_closes_writes_all_of_a_message_or_tells(lonely_client, monkeypatch, is_shutdown):
    stuck, told = OneByOne(monkeypatch, stop=2), []
    producer = lonely_client.create_producer("t", **CHUNKS)
    producer.send_async(b"123456789", lambda *answer: told.append(answer))
    eventually(lambda: stuck.commits == 2)
    if is_shutdown:
        producer._shutdown()
        assert told == [(pulsar.Result.AlreadyClosed, None)]
        stuck.go_on.set()
    else:
        stuck.go_on.set()
        producer.close()
        assert [result for result, _ in told] == [pulsar.Result.Ok]
    eventually(lambda: TableLog(read_topic(lonely_client._layout, "t").path).latest() == (2 if is_shutdown else 3))
    assert len(told) == 1


def test_batching_and_chunking_are_refused_together(lonely_client):
    with pytest.raises(ValueError, match="exclude each other"):
        lonely_client.create_producer("t", batching_enabled=True, chunking_enabled=True)
