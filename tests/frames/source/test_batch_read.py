"""A message that a batch read leaves out, gives twice, or shows otherwise than a reader does, is found here."""

import json
from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

import pulsar_spark as pulsar
from pulsar_spark.errors import InvalidConfiguration, MessagesLost, TopicNotFound
from pulsar_spark.frames.source import message_slices
from pulsar_spark.protocol.delays.instants import EPOCH
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.client.raw_chunks import publish as publish_chunks
from tests.frames.source.reading import read_batch, source, trim_before
from tests.payloads.keys import key_pair


def payloads(rows: pa.Table) -> list[str | None]:
    return [None if each is None else each.decode() for each in rows["payload"].to_pylist()]


def send(client: pulsar.Client, topic: str, *texts: str, **settings) -> list[pulsar.MessageId]:
    producer = client.create_producer(topic, **settings)
    ids = [producer.send(text.encode(), partition_key=text) for text in texts]
    producer.close()
    return ids


def test_a_read_has_what_a_reader_has(root, client):
    producer = client.create_producer("t", producer_name="p")
    sent = producer.send(b"a", properties={"x": "y"}, partition_key="k", event_timestamp=5, sequence_id=3)
    producer.send(None)
    first, second = read_batch(root, topic="t").to_pylist()
    message = client.create_reader("t", pulsar.MessageId.earliest).read_next(1000)
    assert (first["topic"], first["partition"], first["position"]) == ("persistent://public/default/t", -1, 0)
    assert (first["payload"], first["properties"], first["partition_key"]) == (b"a", [("x", "y")], "k")
    assert (first["ledger_id"], first["entry_id"]) == (sent.ledger_id(), sent.entry_id())
    assert first["event_time"] == EPOCH + timedelta(milliseconds=5)
    assert first["publish_time"] == EPOCH + timedelta(milliseconds=message.publish_timestamp())
    assert (first["producer_name"], first["sequence_id"], first["payload_error"]) == ("p", 3, None)
    assert len(first["publish_id"]) == 32 and second["payload"] is None


def test_partitions_topics_and_patterns(root, client):
    create_topic(Layout(root), "parts", 3)
    send(client, "parts", "a", "b", "c", "d", "e")
    send(client, "other", "f")
    assert sorted(payloads(read_batch(root, topic="parts"))) == ["a", "b", "c", "d", "e"]
    assert sorted(payloads(read_batch(root, topics="parts,other"))) == ["a", "b", "c", "d", "e", "f"]
    assert payloads(read_batch(root, topicsPattern="oth.*")) == ["f"]
    assert read_batch(root, topicsPattern="nothing.*").num_rows == 0
    of_one = read_batch(root, topic="parts-partition-1")
    assert set(of_one["partition"].to_pylist()) <= {1}
    each = [read_batch(root, topic=f"parts-partition-{index}").num_rows for index in range(3)]
    assert sum(each) == 5
    with pytest.raises(TopicNotFound, match="'persistent://public/default/nowhere' does not exist"):
        read_batch(root, topic="nowhere")


def test_places(root, client):
    ids = send(client, "t", "m0", "m1", "m2", "m3")
    times = {row["payload"].decode(): row["publish_time"] for row in read_batch(root, topic="t").to_pylist()}

    def between(start, end="latest"):
        return payloads(read_batch(root, topic="t", startingPosition=start, endingPosition=end))

    assert between("earliest") == ["m0", "m1", "m2", "m3"] and between("latest") == []
    assert between("1", "3") == ["m1", "m2"] and between("3", "1") == [] and between("2", "99") == ["m2", "m3"]
    assert between(str(ids[1]), str(ids[3])) == ["m1", "m2"]
    assert between(json.dumps({"t": {"-1": 3}})) == ["m3"]
    assert between(json.dumps({"t": {"-1": "latest"}})) == []
    later = [name for name, time in times.items() if time >= times["m2"]]
    assert between(times["m2"].isoformat()) == later
    assert between("1999-01-01", times["m2"].isoformat()) == [name for name in times if name not in later]


@pytest.mark.parametrize("text", ["yesterday", "-1", "[1]", '{"t": 5}', '{"t": {"x": 5}}', '{"t": {"0": -5}}'])
def test_a_place_that_is_none_is_named(root, client, text):
    send(client, "t", "m")
    with pytest.raises(InvalidConfiguration, match="option 'startingPosition' is .*: give 'earliest', 'latest', a pos"):
        read_batch(root, topic="t", startingPosition=text)


def test_milliseconds_are_no_position(root, client):
    send(client, "t", "m")
    for place in ("1769860800000", '{"t": {"-1": 1769860800000}}'):
        with pytest.raises(InvalidConfiguration, match="is 1769860800000, more than any position: give milliseconds"):
            read_batch(root, topic="t", startingPosition=place)


@pytest.mark.parametrize(
    "places, text", [({"u": {"-1": 0}}, "topic '.*/u'"), ({"t": {"0": 2}}, "partition 0 of .*/t'")]
)
def test_a_place_of_what_is_not_read_is_named(root, client, places, text):
    send(client, "t", "m")
    for option in ("startingPosition", "endingPosition"):
        with pytest.raises(InvalidConfiguration, match=f"'{option}' names {text}, which is not read"):
            read_batch(root, topic="t", **{option: json.dumps(places)})


def test_places_of_partitions_that_are_read_one_by_one(root, client):
    create_topic(Layout(root), "parts", 2)
    send(client, "parts", "a", "b", "c")
    places = json.dumps({"parts": {"0": 0, "1": 0}})
    found = read_batch(root, topics="parts-partition-0,parts-partition-1", startingPosition=places)
    assert sorted(payloads(found)) == ["a", "b", "c"]


def test_an_id_of_another_partition_is_named(root, client):
    create_topic(Layout(root), "parts", 2)
    (sent,) = send(client, "parts", "a")
    with pytest.raises(InvalidConfiguration, match=f"is of partition {sent.partition()}, not of "):
        read_batch(root, topic="parts", startingPosition=str(sent))


def test_chunks_are_joined(root, client):
    publish_chunks(client, "t", "A:0:2:a0", "x", "B:0:2:b0", "A:1:2:a1", "y", "C:0:3:c0", "B:1:2:b1")
    rows = read_batch(root, topic="t")
    assert payloads(rows) == ["x", "a0a1", "y", "b0b1"] and rows["position"].to_pylist() == [1, 3, 4, 6]
    assert payloads(read_batch(root, topic="t", startingPosition=3, endingPosition=4)) == ["a0a1"]
    assert payloads(read_batch(root, topic="t", startingPosition=4)) == ["y", "b0b1"]
    publish_chunks(client, "t", "C:1:3:c1", "C:2:3:c2")
    assert payloads(read_batch(root, topic="t", startingPosition=7)) == ["c0c1c2"]
    few = read_batch(root, T.StructType([T.StructField("position", T.LongType())]), topic="t")
    assert few["position"].to_pylist() == [1, 3, 4, 6, 8]


def test_small_slices_have_all_messages_once(root, client, monkeypatch):
    monkeypatch.setattr(message_slices, "SLICE_BYTES", 1500)
    monkeypatch.setattr(message_slices, "SLICE_RUNS", 3)
    producer = client.create_producer("t", batching_enabled=True, batching_max_messages=7)
    for number in range(200):
        producer.send_async(f"m{number}".encode() * 20, None)
    producer.flush()
    chunking = client.create_producer("t", chunking_enabled=True, chunk_max_message_size=40)
    for number in range(20):
        chunking.send(f"c{number}".encode() * 60)
    made = source(root, topic="t")
    assert len(made.reader(made.schema()).partitions()) > 10
    expected = [f"m{number}" * 20 for number in range(200)] + [f"c{number}" * 60 for number in range(20)]
    assert payloads(read_batch(root, topic="t")) == expected


def test_payloads_are_plain(root, client, tmp_path):
    keys = key_pair("k")
    paths = [tmp_path / name for name in ("public.pem", "private.pem")]
    for path, key in zip(paths, keys):
        path.write_bytes(key)
    send(client, "t", "a", "b" * 5000, compression_type=pulsar.CompressionType.ZSTD)
    reader = pulsar.CryptoKeyReader(*paths)
    send(client, "t", "secret", encryption_key="k", crypto_key_reader=reader)
    rows = read_batch(root, topic="t", privateKeyPath=paths[1])
    assert payloads(rows) == ["a", "b" * 5000, "secret"] and rows["payload_error"].null_count == 3
    assert rows["compression"].null_count == rows["encryption_keys"].null_count == 3
    failed = read_batch(root, topic="t")
    assert payloads(failed)[:2] == ["a", "b" * 5000] and failed["payload"][2].as_py() is None
    assert failed["payload_error"][2].as_py().startswith("CryptoError")
    assert payloads(read_batch(root, topic="t", cryptoFailureAction="DISCARD")) == ["a", "b" * 5000]
    kept = read_batch(root, topic="t", cryptoFailureAction="CONSUME")
    assert kept["payload"][2].as_py() and kept["encryption_keys"].null_count == 2


def test_deleted_rows_stay_deleted_and_lost_ones_are_named(root, client):
    send(client, "t", "a", "b", "c")
    path = read_topic(Layout(root), "t").path
    DeltaTable(str(path)).delete("partition_key = 'b'")
    assert payloads(read_batch(root, topic="t")) == ["a", "c"]
    for file in path.glob("*.parquet"):
        file.unlink()
    with pytest.raises(MessagesLost, match="of the topic at .* are lost: file"):
        read_batch(root, topic="t")


def test_trimmed_messages_are_passed_over(root, client):
    send(client, "t", "a", "b", "c")
    trim_before(root, "t", 2)
    assert payloads(read_batch(root, topic="t")) == ["c"]


def test_the_columns_of_the_connector(root, client):
    create_topic(Layout(root), "parts", 2)
    (sent,) = send(client, "parts", "a")
    (row,) = read_batch(root, topic="parts", columns="connector").to_pylist()
    assert (row["value"], row["__key"], row["__messageProperties"]) == (b"a", b"a", None)
    assert row["__topic"] == f"persistent://public/default/parts-partition-{sent.partition()}"
    assert pulsar.MessageId.deserialize(row["__messageId"]) == sent


def test_few_columns_are_chosen_by_a_schema(root, client):
    send(client, "t", "a")
    few = T.StructType([T.StructField("position", T.LongType()), T.StructField("topic", T.StringType())])
    assert read_batch(root, few, topic="t").to_pylist() == [{"position": 0, "topic": "persistent://public/default/t"}]
    wrong = T.StructType([T.StructField("payloads", T.BinaryType())])
    with pytest.raises(InvalidConfiguration, match="column 'payloads' is none of the source's; did you mean 'payload'"):
        read_batch(root, wrong, topic="t")
    text = T.StructType([T.StructField("payload", T.StringType())])
    with pytest.raises(InvalidConfiguration, match="column 'payload' is binary, not string: cast it after the read"):
        read_batch(root, text, topic="t")


def test_a_batch_read_of_a_subscription_is_refused(root, client):
    made = source(root, topic="t", subscription="s")
    with pytest.raises(InvalidConfiguration, match="option 'subscription' belongs to a stream: use readStream"):
        made.reader(made.schema())
