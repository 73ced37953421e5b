"""Chunked messages as DataFrames: published in chunks, delivered, read and sent back as one row each."""

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from pulsar_spark.admin import Admin
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, MessageTooBig, UnreadableMessage
from pulsar_spark.frames import consume, dead_letters, decode_payloads, publish, read_messages, reprocess_dead_letters
from pulsar_spark.frames.deliveries import chunk_deliveries
from pulsar_spark.frames.deliveries.chunk_deliveries import find_parts
from pulsar_spark.frames.reading.chunk_payloads import GONE
from pulsar_spark.protocol.chunks.chunking import metadata_bytes
from pulsar_spark.storage.delta import reader_rows
from pulsar_spark.storage.delta.data_files import ROW_GROUP_BYTES
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.entries import entries, run_slices
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.client.test_bad_chunks import CASES, UNREADABLE, write
from tests.support.arriving import arrive
from tests.tables.test_lost import damage_group

WAIT = 60
SIZES = (0, 999, 1000, 1001, 2500, 10_000, None)
"""Of payloads, of which the last three above 1000 bytes are split."""


@pytest.fixture
def served(tmp_path):
    with PlainBroker(tmp_path / "root") as broker:
        yield broker


def big_and_small(spark, partitions=1):
    """A message of each size, of key k0, k1..."""
    rows = [(number, size) for number, size in enumerate(SIZES)]
    return (
        spark.createDataFrame(rows, "number int, size int")
        .repartition(partitions, "number")
        .sortWithinPartitions("number")
        .selectExpr("repeat(chr(97 + number), size) AS payload", "concat('k', number) AS key")
    )


EXPECTED = {
    f"k{number}": size and chr(97 + number) * size or ("" if size == 0 else None) for number, size in enumerate(SIZES)
}


def stored(layout, topic):
    """The rows of a topic in the order of their entries."""
    rows = dataset_of(read_topic(layout, topic).path).to_table()
    return rows.sort_by([(name, "ascending") for name in ("publish_id", "partition", "entry_id")]).to_pylist()


def payloads(frame):
    found = frame.select("partition_key", F.col("payload").cast("string")).collect()
    assert len(found) == len({row[0] for row in found})
    return {row[0]: row[1] for row in found}


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_publish_splits_what_is_too_large(spark, tmp_path, partitions):
    """Chunks of a message follow each other in one file with dense entry ids; all say the same but for their part."""
    layout = Layout(tmp_path / "root")
    create_topic(layout, "t", partitions)
    frame = big_and_small(spark, 2).withColumn("properties", F.expr("map('of', key)"))
    done = publish(frame, layout.root, "t", chunking=True, chunk_max_message_size=1000)
    rows = stored(layout, "t")
    assert done.messages == len(SIZES) and len(rows) == 4 + 2 + 3 + 10
    chunks = [row for row in rows if row["uuid"] is not None]
    for key, size in (("k3", 1001), ("k4", 2500), ("k5", 10_000)):
        mine = [row for row in chunks if row["partition_key"] == key]
        count = -(-size // 1000)
        assert [row["chunk_id"] for row in mine] == list(range(count))
        first = mine[0]["entry_id"]
        assert [row["entry_id"] for row in mine] == list(range(first, first + count))
        (producer, sequence_id) = {(row["producer_name"], row["sequence_id"]) for row in mine}.pop()
        assert producer == f"publish-{done.publish_id}"
        same = {
            (row["partition"], row["uuid"], row["num_chunks_from_msg"], row["total_chunk_msg_size"]) for row in mine
        }
        assert same == {(mine[0]["partition"], f"{producer}-{sequence_id}", count, size)}
        assert all(dict(row["properties"]) == {"of": key} for row in mine)
        assert b"".join(row["payload"] for row in mine).decode() == EXPECTED[key]
    assert len({row["uuid"] for row in chunks}) == 3
    small = {row["partition_key"]: row for row in rows if row["uuid"] is None}
    assert {key: row["payload"] and row["payload"].decode() for key, row in small.items()} == {
        key: EXPECTED[key] or (None if EXPECTED[key] is None else b"") for key in ("k0", "k1", "k2", "k6")
    }
    assert all(row["chunk_id"] is row["producer_name"] is row["sequence_id"] is None for row in small.values())
    assert payloads(read_messages(spark, layout.root, "t")) == EXPECTED


def test_a_uuid_is_made_of_what_the_rows_say(spark, tmp_path):
    root = tmp_path / "root"
    frame = spark.sql("SELECT repeat('x', 30) AS payload, 17 AS sequence_id UNION ALL SELECT 'y', 18").coalesce(1)
    publish(frame, root, "t", chunking=True, chunk_max_message_size=20, producer_name="sensor")
    rows = stored(Layout(root), "t")
    assert [(row["producer_name"], row["sequence_id"], row["uuid"]) for row in rows] == [
        ("sensor", 17, "sensor-17"),
        ("sensor", 17, "sensor-17"),
        ("sensor", 18, None),
    ]


def test_what_is_too_large_is_refused_without_chunking(spark, tmp_path):
    """And with it, where nothing is left for a payload; a policy says what is too large."""
    root = tmp_path / "root"
    frame = spark.sql("SELECT repeat('x', 2000) AS payload, map('name', repeat('v', 500)) AS properties")
    publish(frame, root, "t")
    with pytest.raises(MessageTooBig, match="2000 bytes, above the maximum of 1000: publish with chunking=True"):
        publish(frame, root, "t", max_message_size=1000)
    with pytest.raises(InvalidMessage, match="the metadata alone takes [0-9]+ of the 600 bytes"):
        publish(frame, root, "t", max_message_size=600, chunking=True)
    with pytest.raises(InvalidConfiguration, match="chunk_max_message_size 10 needs chunking=True"):
        publish(frame, root, "t", chunk_max_message_size=10)
    with pytest.raises(InvalidConfiguration, match="max_message_size 0"):
        publish(frame, root, "t", max_message_size=0, chunking=True)
    assert len(stored(Layout(root), "t")) == 1
    with PlainBroker(root):
        Admin(f"delta:{root}").set_policy("public/default", "max_message_size", 1500)
        with pytest.raises(MessageTooBig, match="above the maximum of 1500"):
            publish(frame, root, "t")
        publish(frame, root, "t", chunking=True)
    chunks = stored(Layout(root), "t")[1:]
    texts = (chunks[0]["producer_name"].encode(), f"{chunks[0]['producer_name']}-{2**63}".encode())
    room = 1500 - metadata_bytes(texts, [(b"name", b"v" * 500)])
    assert [len(row["payload"]) for row in chunks] == [room, room, 2000 - 2 * room]


def test_row_groups_of_large_payloads_are_small(spark, tmp_path):
    """Small messages before large ones do not make the writer wait with its next look; nor does OPTIMIZE join them to
    larger ones."""
    root = tmp_path / "root"
    sizes = F.when(F.col("id") < 20_000, 20).otherwise(1_000_000)
    frame = spark.range(0, 20_100, 1, 1).withColumn("size", sizes.cast("int"))
    payloads = frame.selectExpr("repeat('x', size) AS payload")
    publish(payloads, root, "t", chunking=True, chunk_max_message_size=400_000)
    path = read_topic(Layout(root), "t").path
    assert row_groups(path, 20_300) < 8
    publish(payloads, root, "t", chunking=True, chunk_max_message_size=400_000)
    spark.sql(f"OPTIMIZE delta.`{path}`")
    assert row_groups(path, 2 * 20_300) < 16


@pytest.mark.parametrize(("messages", "size"), [(150, 1_000_000), (200_000, 400)])
def test_row_groups_of_what_compresses_well_are_small(spark, tmp_path, messages, size):
    """Nor of payloads of which none is there twice, so that no dictionary holds them."""
    root = tmp_path / "root"
    publish(spark.range(0, messages, 1, 1).selectExpr(f"concat(id, repeat('x', {size})) AS payload"), root, "t")
    assert row_groups(read_topic(Layout(root), "t").path, messages) > 1


def row_groups(path, rows) -> int:
    """Of the one file of a table with so many rows, none of which is large."""
    (file,) = DeltaTable(str(path)).file_uris()
    footer = pq.read_metadata(file)
    sizes = [footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)]
    assert max(sizes) < 2 * ROW_GROUP_BYTES and footer.num_rows == rows
    return len(sizes)


class Collected:
    """A function that keeps what it is given, and fails the first time if it is to."""

    def __init__(self, fails=False):
        self.found, self.counts, self.fails = [], [], fails

    def __call__(self, messages, delivery):
        self.counts.append(delivery.messages)
        self.found.append(
            [(row.position, row.payload and bytes(row.payload), row.redelivery_count) for row in messages.collect()]
        )
        if self.fails:
            self.fails = False
            raise ValueError("once")

    def rows(self):
        return sorted(row for found in self.found for row in found)


def run_to_end(spark, served, function, subscription_type="Exclusive", **options):
    with consume(
        spark,
        served.layout.root,
        "t",
        subscription_type,
        function,
        subscription_type=subscription_type,
        available_now=True,
        **options,
    ) as consumption:
        assert consumption.await_termination(WAIT)
    return consumption


@pytest.mark.parametrize("subscription_type", ["Exclusive", "KeyShared"])
def test_a_delivery_has_a_row_a_message(spark, served, subscription_type, monkeypatch):
    """Interleaved, with a resend and an incomplete one; the function fails at first, and gets all of them again. Which
    chunks they are is read once a delivery."""
    found = []
    monkeypatch.setattr(chunk_deliveries, "find_parts", lambda *asked, find=find_parts: found.append(1) or find(*asked))
    create_topic(served.layout, "t")
    arrive(served, "t", "A:0:2", "B:0:2", "plain", "C:0:3", "A:0:2", "B:1:2", "A:1:2", "C:2:3", total_chunk_msg_size=10)
    expected = [(2, b"plain", 0), (5, b"B:0:2B:1:2", 0), (6, b"A:0:2A:1:2", 0)]
    collected = Collected(fails=True)
    with pytest.raises(ValueError, match="once"):
        run_to_end(spark, served, collected, subscription_type)
    assert collected.rows() == expected and collected.counts == [3]
    collected = Collected()
    run_to_end(spark, served, collected, subscription_type)
    assert collected.rows() == [(position, payload, 1) for position, payload, _ in expected] and len(found) == 2
    arrive(served, "t", "C:0:2", "C:1:2", total_chunk_msg_size=10)
    collected = Collected()
    run_to_end(spark, served, collected, subscription_type)
    assert collected.rows() == [(9, b"C:0:2C:1:2", 0)]
    assert payloads(read_messages(spark, served.layout.root, "t").withColumn("partition_key", F.col("position"))) == {
        2: "plain",
        5: "B:0:2B:1:2",
        6: "A:0:2A:1:2",
        9: "C:0:2C:1:2",
    }


def test_one_that_does_not_add_up_is_an_error_and_the_rest_flows(spark, served):
    """It stays unacknowledged; one of which a chunk was deleted is gone, like any deleted message."""
    create_topic(served.layout, "t")
    arrive(served, "t", "A:0:2", "A:1:2", total_chunk_msg_size=11)
    arrive(served, "t", "B:0:2", "B:1:2", "C:0:2", "C:1:2", total_chunk_msg_size=10)
    path = read_topic(served.layout, "t").path
    spark.sql(f"DELETE FROM delta.`{path}` WHERE uuid = 'B' AND chunk_id = 0")
    collected = Collected()
    with pytest.raises(UnreadableMessage, match="10 bytes together, and one of them gives the message 11"):
        run_to_end(spark, served, collected)
    assert collected.rows() == [(5, b"C:0:2C:1:2", 0)]
    assert served.statuses("t", "Exclusive")[1] != "acknowledged"
    assert served.statuses("t", "Exclusive")[3] == "acknowledged"
    read = read_messages(spark, served.layout.root, "t")
    wrong = "its chunks have 10 bytes together, and one of them gives the message 11 (total_chunk_msg_size)"
    for messages in (read, decode_payloads(read)):
        rows = messages.select("position", "payload", "payload_error").collect()
        assert sorted(map(tuple, rows)) == [(1, None, f"UnreadableMessage: {wrong}"), (5, b"C:0:2C:1:2", None)]


def test_a_frame_tells_of_what_was_deleted_since(spark, served):
    """Chunks are read when somebody asks for their payload, and only then; another message is as it was."""
    create_topic(served.layout, "t")
    arrive(served, "t", "A:0:2", "A:1:2", "B:0:2", "B:1:2", total_chunk_msg_size=10)
    read = read_messages(spark, served.layout.root, "t")
    path = read_topic(served.layout, "t").path
    spark.sql(f"DELETE FROM delta.`{path}` WHERE uuid = 'B' AND chunk_id = 0")
    rows = read.select("position", "payload", "payload_error").collect()
    assert sorted(map(tuple, rows)) == [(1, b"A:0:2A:1:2", None), (3, None, f"UnreadableMessage: {GONE}")]
    without = read.select("position", "partition_key")
    assert without.count() == 2 and "Python" not in without._jdf.queryExecution().executedPlan().toString()
    assert [row.position for row in read_messages(spark, served.layout.root, "t").collect()] == [1]


@pytest.mark.parametrize(("lost", "damaged"), [(2, None), (3, None), (2, "uuid"), (3, "uuid"), (2, "payload")])
def test_a_lost_chunk_is_told_where_the_topic_is_read(spark, served, lost, damaged, monkeypatch):
    """As a row of its own, or, where it is only its payload that cannot be read, as its message's."""
    monkeypatch.setattr(reader_rows, "MOST_STATED", 0)  # a commit that states its rows is read instead of the file
    create_topic(served.layout, "t")
    arrive(served, "t", "A:0:2", "A:1:2", "B:0:2", "B:1:2", "x", total_chunk_msg_size=10)
    path = read_topic(served.layout, "t").path
    file = path / TableLog(path).commit(lost + 1).added[0].path
    file.unlink() if damaged is None else damage_group(file, 0, damaged)
    monkeypatch.setattr(run_slices, "_SLICES", entries.EntryReader())
    read = read_messages(spark, served.layout.root, "t")
    rows = {row.position: row for row in read.select("position", "entry_id", "payload", "payload_error").collect()}
    place = 3 if damaged == "payload" else lost
    assert {at: row.payload for at, row in rows.items()} == {1: b"A:0:2A:1:2", 4: b"x", place: None}
    assert rows[place].entry_id == 0 and rows[place].payload_error.startswith(f"MessagesLost: messages {lost + 1}:0 of")


def test_dead_letters_in_chunks_are_listed_and_sent_back_whole(spark, served, caplog):
    """One letter each; the message sent back goes in chunks again where it is too large, and once. One that does not
    add up stays where it is, named."""
    root, name = served.layout.root, "t-s-DLQ"
    create_topic(served.layout, "t")
    create_topic(served.layout, name)
    told = [("REAL_TOPIC", "persistent://public/default/t"), ("REAL_SUBSCRIPTION", "s"), ("colour", "red")]
    of_letter = {"properties": told, "total_chunk_msg_size": 10, "partition_key": "k"}
    arrive(served, name, "A:0:2", "plain", "B:0:3", "A:1:2", **of_letter)
    arrive(served, name, "C:0:2", "C:1:2", **of_letter | {"total_chunk_msg_size": 11})
    letters = dead_letters(spark, root, name)
    found = letters.select("position", F.col("payload").cast("string"), "subscription", "payload_error").collect()
    wrong = "its chunks have 10 bytes together, and one of them gives the message 11 (total_chunk_msg_size)"
    assert sorted(map(tuple, found)) == [
        (1, "plain", "s", None),
        (3, "A:0:2A:1:2", "s", None),
        (5, None, "s", f"UnreadableMessage: {wrong}"),
    ]
    publish(spark.sql("SELECT 'x' AS payload"), root, "repaired")
    Admin(f"delta:{root}").set_policy("public/default", "max_message_size", 400)

    def longer(letters):
        return letters.withColumn(
            "payload", F.expr("repeat(cast(payload AS string), if(position = 3, 50, 1))").cast("binary")
        )

    for _ in range(2):
        done = reprocess_dead_letters(spark, root, name, job_id="again", to="topic:repaired", fix=longer)
        assert (done.matched, done.sent, done.unreadable) == (3, 2, 1)
    assert caplog.text.count(f"the first is {letters.filter('position = 5').first().message_id}: Unreadable") == 1
    chunks = [row for row in stored(served.layout, "repaired") if row["uuid"] is not None]
    assert len(chunks) == -(-500 // len(chunks[0]["payload"])) > 2
    expected = {"plain": "red", "A:0:2A:1:2" * 50: "red"}
    sent = read_messages(spark, root, "repaired").filter("properties IS NOT NULL")
    assert {row.payload.decode(): row.properties["colour"] for row in sent.collect()} == expected


def test_whatever_chunks_say_the_rest_is_there(spark, served):
    """All that is done to a client's reader and consumers, in one topic."""
    create_topic(served.layout, "t")
    expected = []
    for number, (rows, found) in enumerate(CASES.values()):
        named = [row | {"uuid": f"{number}-{row['uuid']}"} for row in rows]
        write(served.layout, "t", [*named[:1], dict(payload=b"between"), *named[1:]])
        expected += [b"between", *found]
    readable = sorted(each for each in expected if each != UNREADABLE)
    rows = read_messages(spark, served.layout.root, "t").select("payload", "payload_error").collect()
    assert sorted(row["payload"] for row in rows if row["payload"] is not None) == readable
    refused = [row["payload_error"] for row in rows if row["payload"] is None]
    assert len(refused) == expected.count(UNREADABLE)
    assert {each.partition(":")[0] for each in refused} == {"UnreadableMessage"}
    collected = Collected()
    with pytest.raises(UnreadableMessage):
        run_to_end(spark, served, collected)
    assert sorted(payload for _, payload, _ in collected.rows()) == readable
