"""What other consumers, chunks, batches, delays and limits do to the micro-batches of a stream with a subscription, and
what a checkpoint or option that does not fit gets."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.errors import AlreadyClosed, InvalidConfiguration, MessagesLost, SubscriptionBusy, Timeout
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.client.raw_chunks import publish as publish_chunks
from tests.frames.source.reading import source
from tests.frames.source.subscription.micro_batches import Checkpoint, Killed, Query, Sink, consumers_of, killed_after
from tests.support.waiting import eventually


@pytest.fixture
def sink():
    return Sink()


def send(client, *texts: str, **settings) -> None:
    producer = client.create_producer("t", **settings)
    for text in texts:
        producer.send_async(text.encode(), None, partition_key=text[0])
    producer.close()


def query(root, checkpoint: Checkpoint, sink: Sink, after=lambda step: None, **options) -> Query:
    return Query(root, checkpoint, sink, after, **{"topic": "t", "subscription": "s", **options})


def test_a_stream_that_is_stopped_keeps_its_micro_batch_and_goes_on(broker, root, client, sink):
    send(client, "a", "b")
    checkpoint = Checkpoint()
    first = query(root, checkpoint, sink, killed_after("read"), subscriptionType="Shared")
    with pytest.raises(Killed):
        first.run(1)
    first.stop()
    send(client, "c")
    other = client.subscribe("t", "s", pulsar.ConsumerType.Shared)
    assert other.receive(10_000).data() == b"c"
    other.close()
    query(root, checkpoint, sink, subscriptionType="Shared").run(available_now=True)
    assert sorted(sink.payloads) == [b"a", b"b", b"c"] and sorted(sink.batches[0][0]["payload"]) == list(b"a")


@pytest.mark.parametrize("is_stopped_late", [False, True], ids=["before the lease ends", "afterwards"])
def test_what_others_got_after_the_lease_is_acknowledged_all_the_same(broker, root, client, sink, is_stopped_late):
    """A stream that stops afterwards connects its consumer again, which has nothing of its micro-batch any more."""
    send(client, "a", "b")
    checkpoint = Checkpoint()
    first = query(root, checkpoint, sink, killed_after("read"), subscriptionType="Shared")
    with pytest.raises(Killed):
        first.run(1)
    (consumer_id,) = consumers_of(broker)
    stop_and_end_lease = [first.stop, lambda: broker.end_lease(consumer_id)]
    for step in reversed(stop_and_end_lease) if is_stopped_late else stop_and_end_lease:
        step()
        broker.settle()
    other = client.subscribe("t", "s", pulsar.ConsumerType.Shared)
    assert {other.receive(10_000).data() for _ in range(2)} == {b"a", b"b"}
    query(root, checkpoint, sink, subscriptionType="Shared").run(available_now=True)
    assert sink.payloads == [b"a", b"b"]
    eventually(lambda: broker.cursor("t", "s").mark_delete == 1)
    other.close()


def test_streams_share_a_subscription(broker, root, client, sink):
    send(client, *"abcdefgh")
    options = {"subscriptionType": "Shared", "maxMessagesPerTrigger": 2}
    streams = [query(root, Checkpoint(), each, **options) for each in (sink, Sink())]
    for each in streams * 2:
        each.run(1)
    payloads = [payload for each in streams for payload in each._sink.payloads]
    assert sorted(payloads) == [bytes([each]) for each in b"abcdefgh"]
    for each in streams:
        each.stop()


def test_limits(broker, root, client, sink):
    send(client, *(f"{number:02}" for number in range(7)))
    checkpoint = Checkpoint()
    limited = query(root, checkpoint, sink, maxMessagesPerTrigger=3)
    assert limited.reader.getDefaultReadLimit() == ReadMaxRows(3)
    limited.run(available_now=True)
    assert [len(rows) for rows in sink.batches.values()] == [3, 3, 1]
    by_bytes = query(root, Checkpoint(), Sink(), maxBytesPerTrigger=1, subscription="bytes")
    assert by_bytes.reader.getDefaultReadLimit() == ReadMaxBytes(1)
    by_bytes.run(available_now=True)
    assert len(by_bytes._sink.batches) == 7
    once = query(root, Checkpoint(), Sink(), maxMessagesPerTrigger=3, subscription="once")
    end = once.reader.latestOffset(once.reader.initialOffset(), ReadAllAvailable())
    assert end["topics"]["persistent://public/default/t"]["messages"] == 7
    once.stop()


def test_chunks_batches_and_redeliveries(broker, root, client, sink):
    publish_chunks(client, "t", "A:0:2:aa", "x", "A:1:2:bb")
    batched = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for text in ("p", "q", "r"):
        batched.send_async(text.encode(), None)
    batched.close()
    consumer = client.subscribe(
        "t", "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=100,
    )  # fmt: skip
    received = [consumer.receive(10_000) for _ in range(5)]
    by_text = {message.data(): message for message in received}
    consumer.acknowledge(by_text[b"q"])
    consumer.negative_acknowledge(by_text[b"x"])
    assert consumer.receive(10_000).redelivery_count() == 1
    consumer.close()
    query(root, Checkpoint(), sink, subscriptionType="Shared").run(available_now=True)
    found = {row["payload"]: row["redelivery_count"] for rows in sink.batches.values() for row in rows}
    assert found == {b"aabb": 0, b"x": 1, b"p": 0, b"r": 0}
    eventually(lambda: broker.cursor("t", "s").mark_delete == 3)


def test_a_moved_cursor_decides_what_comes_again(broker, root, client, sink):
    send(client, "a", "b")
    checkpoint = Checkpoint()
    running = query(root, checkpoint, sink)
    running.run(1)
    Admin(f"delta:{root}").reset_cursor("t", "s", "earliest")
    running.run(1)
    running.run(available_now=False)
    assert sink.payloads == [b"a", b"b", b"a", b"b"]
    running.stop()


def test_progress_says_the_backlog(broker, root, client, sink):
    send(client, "a", "b", "c")
    running = query(root, Checkpoint(), sink, maxMessagesPerTrigger=2)
    running.run(1)
    assert running.progress == {
        "subscription": "s",
        "topics": {"persistent://public/default/t": {"backlog": 3, "delayed": 0}},
    }
    running.stop()


def test_a_checkpoint_that_does_not_fit(broker, root, client, sink):
    send(client, "a")
    checkpoint = Checkpoint()
    query(root, checkpoint, sink).run(available_now=True)
    with pytest.raises(InvalidConfiguration, match="of subscription 's', not of 'other'"):
        query(root, checkpoint, sink, subscription="other").run(1)
    with pytest.raises(InvalidConfiguration, match="which the options do not name"):
        query(root, checkpoint, sink, topic="u").run(1)
    with pytest.raises(InvalidConfiguration, match="no stream with a subscription wrote"):
        query(root, Checkpoint([json.dumps({"t": {"-1": 5}})], 1), sink).run(1)
    Admin(f"delta:{root}").delete_topic("t")
    create_topic(broker.layout, "t")
    with pytest.raises(InvalidConfiguration, match="deleted and created again"):
        query(root, checkpoint, sink).run(1)


def test_a_subscription_of_another_type_and_a_topic_that_goes_away(broker, root, client, sink):
    other = client.subscribe("t", "s", pulsar.ConsumerType.Shared)
    with pytest.raises(SubscriptionBusy, match="consumers of type Shared are connected"):
        query(root, Checkpoint(), sink).run(1)
    running = query(root, Checkpoint(), sink, subscriptionType="Shared")
    running.reader.latestOffset(running.reader.initialOffset(), ReadMaxRows(1))
    other.close()
    Admin(f"delta:{root}").delete_topic("t", force=True)

    def is_told() -> bool:
        running.reader.latestOffset(running.reader.initialOffset(), ReadMaxRows(1))
        return False

    with pytest.raises(AlreadyClosed, match="was deleted"):
        eventually(is_told)
    running.stop()


def test_no_broker(tmp_path, sink):
    made = source(tmp_path / "root", topic="t", subscription="s", operationTimeoutSeconds=1)
    reader = made.streamReader(made.schema())
    with pytest.raises(Timeout, match="no broker answered on root"):
        reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))


def test_lost_messages(broker, root, client, sink):
    producer = client.create_producer("t")
    for text in ("a", "b"):
        producer.send(text.encode() * 20_000)
    gone, _ = sorted((read_topic(broker.layout, "t").path).glob("*.parquet"), key=lambda file: file.stat().st_mtime)
    gone.unlink()
    with pytest.raises(MessagesLost, match="failOnDataLoss|lost"):
        query(root, Checkpoint(), sink).run(available_now=True)
    query(root, Checkpoint(), sink, subscription="other", failOnDataLoss=False).run(available_now=True)
    assert [payload[:1] for payload in sink.payloads] == [b"b"]
