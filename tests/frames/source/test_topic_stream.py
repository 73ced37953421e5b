"""A message that a stream without a subscription leaves out or gives in two micro-batches is found here, and one that
goes away unnoticed."""

import json
import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import pulsar_spark as pulsar
from pulsar_spark.errors import InvalidConfiguration, MessagesTrimmed, TopicNotFound
from pulsar_spark.frames.source import topic_stream
from pulsar_spark.frames.source.followed_topic import FollowedTopic
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import ledgers
from pulsar_spark.storage.ledgers.ledgers import read_ledgers
from pulsar_spark.storage.topics.partitions import raise_partitions
from pulsar_spark.storage.topics.topics import create_topic, delete_topic
from tests.frames.source.reading import read_slices, source, trim_before

ALL = ReadAllAvailable()


def send(client: pulsar.Client, topic: str, *texts: str, **settings) -> None:
    producer = client.create_producer(topic, **settings)
    for text in texts:
        producer.send(text.encode())
    producer.close()


class Query:
    """Runs micro-batches as Spark does: offsets go through JSON; a restart begins at the last one."""

    def __init__(self, root, **options):
        self._made = source(root, **options)
        self.start()

    def start(self, *, available_now: bool = False) -> None:
        self.reader = self._made.streamReader(self._made.schema())
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        if not hasattr(self, "offset"):
            self.offset = self.through_json(self.reader.initialOffset())

    def micro_batch(self, limit=None) -> list[str]:
        end = self.through_json(self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit()))
        found = self.between(self.offset, end)
        self.offset = end
        self.reader.commit(end)
        return found

    def between(self, start, end) -> list[str]:
        slices = self.reader.partitions(start, end)
        reader = self._made.streamReader(self._made.schema())
        return [each.decode() for each in read_slices(reader, slices, self._made.schema())["payload"].to_pylist()]

    @staticmethod
    def through_json(offset):
        return json.loads(json.dumps(offset))


def test_each_micro_batch_has_what_is_new(root, client):
    send(client, "t", "a", "b")
    query = Query(root, topic="t")
    assert query.micro_batch() == ["a", "b"] and query.micro_batch() == []
    send(client, "t", "c")
    before = query.offset
    assert query.micro_batch() == ["c"]
    assert query.between(before, query.offset) == ["c"]
    (place,) = query.reader.reportLatestOffset().values()
    assert place["partitions"] == {"-1": 3}


def test_where_it_starts(root, client):
    send(client, "t", "a", "b", "c")
    assert Query(root, topic="t", startingPosition=1).micro_batch() == ["b", "c"]
    query = Query(root, topic="t", startingPosition="latest")
    assert query.micro_batch() == []
    send(client, "t", "d")
    query.start()
    assert query.micro_batch() == ["d"]


def test_limits(root, client):
    create_topic(Layout(root), "parts", 2)
    send(client, "parts", *"abcdefgh")
    query = Query(root, topic="parts", maxMessagesPerTrigger=3)
    found = [query.micro_batch() for _ in range(4)]
    assert [*map(len, found)] == [3, 3, 2, 0] and sorted(sum(found, [])) == [*"abcdefgh"]
    assert [*map(sorted, found)] == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"], []]
    query = Query(root, topic="parts")
    assert [len(query.micro_batch(ReadMaxRows(5))), len(query.micro_batch(ALL))] == [5, 3]
    query = Query(root, topic="parts", maxBytesPerTrigger=1)
    assert [len(query.micro_batch()) for _ in range(3)] == [1, 1, 1]
    assert len(query.micro_batch(ReadMaxBytes(1 << 20))) == 5
    both = Query(root, topic="parts", maxBytesPerTrigger=1, maxMessagesPerTrigger=5)
    assert len(both.micro_batch()) == 1


def test_a_large_entry_is_one_micro_batch(root, client):
    producer = client.create_producer("t", batching_enabled=True, batching_max_messages=4)
    for text in "abcd":
        producer.send_async(text.encode(), None)
    producer.flush()
    query = Query(root, topic="t", maxMessagesPerTrigger=3)
    assert query.micro_batch() == [*"abcd"] and query.micro_batch() == []


def test_a_chunked_message_comes_with_its_last_chunk(root, client):
    send(client, "t", "x", "123456789", "y", chunking_enabled=True, chunk_max_message_size=4)
    query = Query(root, topic="t", maxMessagesPerTrigger=2)
    assert [query.micro_batch() for _ in range(4)] == [["x"], ["123456789"], ["y"], []]


def test_available_now_ends_at_what_was_there(root, client):
    send(client, "t", "a", "b", "c")
    query = Query(root, topic="t", maxMessagesPerTrigger=2)
    query.start(available_now=True)
    send(client, "t", "d")
    assert [query.micro_batch() for _ in range(3)] == [["a", "b"], ["c"], []]
    query.start(available_now=True)
    assert [query.micro_batch() for _ in range(2)] == [["d"], []]


def test_topics_and_partitions_that_are_added_are_read_from_their_first_message(root, client):
    create_topic(Layout(root), "t-parts", 1)
    query = Query(root, topicsPattern="t-.*", startingPosition="latest", patternAutoDiscoveryPeriod=0)
    assert query.micro_batch() == []
    send(client, "t-new", "a")
    raise_partitions(Layout(root), "t-parts", 2)
    client.create_producer("t-parts-partition-1").send(b"b")
    assert sorted(query.micro_batch()) == ["a", "b"] and query.micro_batch() == []


def test_some_partitions_by_their_names(root, client):
    create_topic(Layout(root), "parts", 3)
    for index in range(3):
        send(client, f"parts-partition-{index}", f"m{index}")
    query = Query(root, topics="parts-partition-0,parts-partition-2")
    assert sorted(query.micro_batch()) == ["m0", "m2"]
    send(client, "parts-partition-2", "n2")
    send(client, "parts-partition-1", "n1")
    assert query.micro_batch() == ["n2"] and query.micro_batch() == []


def test_a_topic_is_looked_up_once(root, client, monkeypatch):
    """Spark asks for the latest offset all the time: what is known of a topic is followed, not read again."""
    found = []
    monkeypatch.setattr(topic_stream, "FollowedTopic", lambda *args: found.append(args) or FollowedTopic(*args))
    monkeypatch.setattr(
        ledgers, "read_ledgers", lambda *args, **more: loads.append(args) or read_ledgers(*args, **more)
    )
    loads: list = []
    create_topic(Layout(root), "t")
    query = Query(root, topic="t")
    for _ in range(3):
        query.micro_batch()
    assert len(found) == 1 and len(loads) == 1
    send(client, "t", "a")
    assert query.micro_batch() == ["a"] and len(found) == 1 and len(loads) == 1


def test_a_topic_that_is_deleted_is_named(root, client):
    send(client, "t", "a")
    query = Query(root, topic="t")
    assert query.micro_batch() == ["a"]
    client.shutdown()
    delete_topic(Layout(root), "t")
    with pytest.raises(TopicNotFound, match="/t' was deleted while it was read: begin again, a stream"):
        query.micro_batch()
    create_topic(Layout(root), "t")
    with pytest.raises(TopicNotFound, match="was deleted and created again while it was read"):
        query.micro_batch()
    query.start()
    with pytest.raises(TopicNotFound, match="was deleted and created again since the checkpoint: begin with a new"):
        query.micro_batch()


def test_trimmed_messages_are_named(root, client):
    send(client, "t", "a", "b", "c")
    query = Query(root, topic="t", maxMessagesPerTrigger=1)
    assert query.micro_batch() == ["a"]
    trim_before(root, "t", 2)
    with pytest.raises(MessagesTrimmed, match="positions 1 to 1 of partition -1 of topic '.*' were trimmed bef"):
        query.micro_batch()
    assert Query(root, topic="t").micro_batch() == ["c"]


def test_a_refusal_comes_with_the_first_offset(root, client):
    """Spark hides an error that comes earlier. It sends the reader to tasks."""
    send(client, "t", "a")
    made = source(root, topic="t", endingPosition="latest")
    reader = pickle.loads(pickle.dumps(made.streamReader(made.schema())))
    reader.prepareForTriggerAvailableNow()
    for ask in (reader.initialOffset, lambda: reader.latestOffset({}, reader.getDefaultReadLimit())):
        with pytest.raises(InvalidConfiguration, match="'endingPosition' does not belong to a stream without"):
            ask()
    reader.stop()
