"""Publishing frames: what the messages table holds afterwards, and that bad input leaves nothing behind."""

import json
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, MessageTooBig, NotAllowedError, TopicNotFound
from pulsar_spark.frames import Published, publish, publish_stream
from pulsar_spark.frames.publishing import producer
from pulsar_spark.link import quota
from pulsar_spark.protocol.topics.routing import HashingScheme, partition_for_key
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.topics.announcements import take_announced
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from pulsar_spark.table_specs import MESSAGES

PUBLISH_ID = "018f0000000070008000000000000001"
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
LATER = NOW + timedelta(days=1)
REPOSITORY = Path(__file__).parents[2]


def read(spark, layout, topic):
    return spark.read.format("delta").load(str(read_topic(layout, topic).path))


def assert_ids_are_runs(layout, topic):
    """Per file the entry ids have no gap, which is what numbering them needs."""
    path = read_topic(layout, topic).path
    for commit in TableLog(path).commits(0):
        for file in commit.added:
            assert file.max_values["entry_id"] - file.min_values["entry_id"] + 1 == file.rows
            assert file.min_values["publish_id"] == file.max_values["publish_id"]
            ids = pq.read_table(path / file.path, columns=["entry_id"], partitioning=None)["entry_id"].to_pylist()
            assert ids == sorted(ids)


def test_every_column_arrives(spark, root, layout, clock):
    instant = datetime(2024, 1, 2, 3, tzinfo=timezone.utc)
    frame = spark.createDataFrame(
        [("k", "o", {"a": "1"}, instant, instant, 7, "p", bytearray(b"\x00\xff"), 3, None)],
        "key string, ordering_key string, properties map<string,string>, event_time timestamp, deliver_at_time "
        "timestamp, "
        "sequence_id int, producer_name string, payload binary, shape int, note string",
    )
    done = publish(frame.coalesce(1), root, "t", properties_from=["shape", "note"], publish_id=PUBLISH_ID, clock=clock)
    assert done == Published(PUBLISH_ID, 1, 1)
    expected = spark.createDataFrame(
        MESSAGES.rows(
            [
                {
                    "publish_id": PUBLISH_ID,
                    "entry_id": 0,
                    "batch_size": 1,
                    "partition": -1,
                    "partition_key": "k",
                    "ordering_key": "o",
                    "payload": b"\x00\xff",
                    "properties": {"a": "1", "shape": "3"},
                    "event_time": instant,
                    "publish_time": clock(),
                    "deliver_at_time": instant,
                    "producer_name": "p",
                    "sequence_id": 7,
                }
            ]
        )
    )
    assert_df_equality(read(spark, layout, "t"), expected, ignore_nullable=True, ignore_metadata=True)


def test_what_waits_longer_than_the_maximum_is_refused_and_nothing_is_written(spark, root, clock, monkeypatch):
    """At the maximum is not above it (5.1, as Pulsar 4 judges)."""
    monkeypatch.setattr(quota, "max_delay_ms", lambda policies, topic: 60_000)
    at = [clock() + timedelta(minutes=1), clock() + timedelta(minutes=1, milliseconds=1), None]
    frame = spark.createDataFrame([("x", each) for each in at], "payload string, deliver_at_time timestamp")
    with pytest.raises(NotAllowedError, match="maximum of 60000 ms.*--max-delay"):
        publish(frame, root, "t", clock=clock)
    with pytest.raises(NotAllowedError):
        publish(frame.select("payload"), root, "t", deliver_after=timedelta(hours=1), clock=clock)
    assert publish(frame.filter(f"deliver_at_time is null or deliver_at_time <= '{at[0]}'"), root, "t", clock=clock)[
        1:
    ] == (1, 2)


def test_a_publish_is_announced_once_it_is_committed(spark, root, layout):
    frame = spark.range(3).selectExpr("cast(id as string) payload")
    publish(frame, root, "announced", app_id="a", app_version=1)
    assert "public,default,announced" in take_announced(layout)
    assert publish(frame, root, "announced", app_id="a", app_version=1).ledger_id is None
    assert take_announced(layout) == [], "nothing was committed"


@pytest.mark.parametrize("scheme", list(HashingScheme))
def test_a_key_has_the_partition_every_producer_gives_it(spark, root, layout, scheme):
    vectors = json.loads((REPOSITORY / "tests/protocol/golden/g1_key_routing.json").read_text())["cases"]
    keys = [case["input"]["hashed_text"] for case in vectors if case["input"]["hashed_text"] is not None]
    topic = f"t-{scheme.name}"
    create_topic(layout, topic, 7)
    publish(
        spark.createDataFrame([(key,) for key in keys], "key string").withColumn("payload", F.col("key")),
        root,
        topic,
        hashing_scheme=scheme.name,
    )
    routed = read(spark, layout, topic).select("partition_key", "partition")
    expected = spark.createDataFrame([(key, partition_for_key(key, 7, scheme)) for key in keys], routed.schema)
    assert_df_equality(routed, expected, ignore_row_order=True)
    of_seven = vectors[0]["input"]["partition_counts"].index(7)
    golden = {
        case["input"]["hashed_text"]: case["expected"][scheme.name]["partition_by_count"][of_seven]
        for case in vectors
        if scheme.name in case["expected"]
    }
    assert all(partition_for_key(key, 7, scheme) == partition for key, partition in golden.items())


@pytest.mark.parametrize("partitions, options", [(3, {}), (3, {"max_message_size": None}), (10, {})])
def test_a_partition_keeps_the_order_of_the_frame(spark, root, layout, partitions, options):
    """Whether its files are written side by side, or of rows that were sorted."""
    create_topic(layout, "t", partitions)
    publish(
        spark.range(0, 300, 1, 2).select(
            F.col("id").cast("string").alias("payload"), (F.col("id") % 5).cast("string").alias("key")
        ),
        root,
        "t",
        **options,
    )
    assert_ids_are_runs(layout, "t")
    rows = (
        read(spark, layout, "t")
        .orderBy("partition", "entry_id")
        .selectExpr("partition", "cast(payload as string) payload")
        .collect()
    )
    for partition in range(partitions):
        of_partition = [int(row.payload) for row in rows if row.partition == partition]
        assert of_partition == sorted(of_partition)
    assert sorted(int(row.payload) for row in rows) == list(range(300))


@pytest.mark.parametrize("partitions", [0, 3])
def test_publishes_have_the_same_code(spark, root, layout, monkeypatch, partitions):
    """Nothing of a publish alone is written into it: it would be compiled anew for each."""
    create_topic(layout, "t", partitions)
    frame = spark.range(10).selectExpr("cast(id as string) payload", "cast(id as string) key").persist()
    found, staged = [], producer.staged

    def noting(rows, *arguments, **options):
        stages = rows._jdf.queryExecution().debug().codegenToSeq()
        found.append([stages.apply(at)._2() for at in range(stages.size())])
        return staged(rows, *arguments, **options)

    monkeypatch.setattr(producer, "staged", noting)
    for seconds in range(2):
        publish(
            frame, root, "t", deliver_after=timedelta(seconds=seconds), clock=lambda at=seconds: NOW + timedelta(at)
        )
    assert found[0] and found[0] == found[1]
    times = read(spark, layout, "t").select("publish_time", "deliver_at_time").distinct().toArrow().to_pylist()
    assert sorted(tuple(row.values()) for row in times) == [(NOW, NOW), (LATER, LATER + timedelta(seconds=1))]


def test_messages_without_keys_go_round(spark, root, layout):
    create_topic(layout, "t", 4)
    publish(spark.range(0, 400, 1, 2).selectExpr("cast(id as string) payload"), root, "t")
    assert_ids_are_runs(layout, "t")
    counts = read(spark, layout, "t").groupBy("partition").count()
    assert_df_equality(
        counts,
        spark.createDataFrame([(partition, 100) for partition in range(4)], counts.schema),
        ignore_row_order=True,
        ignore_nullable=True,
    )


def test_an_explicit_partition_is_kept(spark, root, layout):
    create_topic(layout, "t", 3)
    publish(spark.createDataFrame([("a", 2), ("b", 0), ("c", 2)], "payload string, partition int"), root, "t")
    publish(spark.createDataFrame([("d",)], "payload string"), root, "t-partition-1")
    placed = read(spark, layout, "t").selectExpr("cast(payload as string) payload", "partition")
    assert_df_equality(
        placed, spark.createDataFrame([("a", 2), ("b", 0), ("c", 2), ("d", 1)], placed.schema), ignore_row_order=True
    )


@pytest.mark.parametrize(
    ("expression", "options", "error", "says"),
    [
        (["'x' as body"], {}, InvalidMessage, "no column 'payload'"),
        (["1 as payload"], {}, InvalidMessage, "not bytes or text"),
        (["'x' as payload", "1 as colour", "2 as `a``b`"], {}, InvalidMessage, "colour"),
        (["'x' as payload", "1 as key"], {}, InvalidMessage, "cast it to string"),
        (["'x' as payload", "'k' as key", "'k' as partition_key"], {}, InvalidMessage, "mean the same"),
        (["'x' as payload", "9 as event_time"], {}, InvalidMessage, "cast it to timestamp"),
        (["'x' as payload", "9 as properties"], {}, InvalidMessage, "map<string,string>"),
        (["'x' as payload"], {"properties_from": ["colour"]}, InvalidMessage, "has only"),
        (["'x' as payload", "3 as partition"], {}, InvalidMessage, "partition 3"),
        (["'x' as payload", "-1 as partition"], {}, InvalidMessage, "partition -1"),
        (["'xyz' as payload"], {"max_message_size": 2}, MessageTooBig, "3 bytes"),
        (["'x' as payload"], {"hashing_scheme": "MD5"}, InvalidConfiguration, "'MD5'"),
        (["'x' as payload"], {"app_id": "a"}, InvalidConfiguration, "both or neither"),
    ],
)
def test_bad_input_publishes_nothing(spark, root, layout, expression, options, error, says):
    create_topic(layout, "t", 3)
    with pytest.raises(error, match=says):
        publish(spark.range(2).selectExpr(*expression), root, "t", **options)
    assert TableLog(read_topic(layout, "t").path).latest() == 0


def test_a_missing_topic_or_partition_is_named(spark, root, layout):
    create_topic(layout, "t", 3)
    one = spark.range(1).selectExpr("'x' as payload")
    with pytest.raises(TopicNotFound, match="none"):
        publish(one, root, "none", create=False)
    with pytest.raises(TopicNotFound, match="3 partitions"):
        publish(one, root, "t-partition-3")


def test_a_transaction_is_published_once(spark, root, layout):
    def attempt(payload, version):
        return publish(
            spark.createDataFrame([(payload,)], "payload string"), root, "t", app_id="nightly", app_version=version
        ).messages

    assert [attempt("first", 1), attempt("again", 1), attempt("next", 2)] == [1, 0, 1]
    payloads = read(spark, layout, "t").selectExpr("cast(payload as string) payload")
    assert_df_equality(payloads, spark.createDataFrame([("first",), ("next",)], payloads.schema), ignore_row_order=True)


def test_a_stream_restarted_from_its_checkpoint_publishes_nothing_twice(spark, root, layout, tmp_path):
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def run():
        stream = spark.readStream.schema("payload string").option("maxFilesPerTrigger", 1).json(str(source))
        query = (
            publish_stream(stream, root, "t")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    source.mkdir()
    (source / "1.json").write_text('{"payload": "a"}\n{"payload": "b"}\n')
    run()
    # As after a crash between the publish and the checkpoint's commit: the batch is run again.
    for committed in (checkpoint / "commits").glob("*0*"):
        committed.unlink()
    (source / "2.json").write_text('{"payload": "c"}\n')
    run()
    payloads = read(spark, layout, "t").selectExpr("cast(payload as string) payload")
    assert_df_equality(
        payloads, spark.createDataFrame([("a",), ("b",), ("c",)], payloads.schema), ignore_row_order=True
    )


CLIENT = """
import sys
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.storage.delta.tables import AppendTable
table = AppendTable(sys.argv[1])
for number in range(int(sys.argv[2])):
    row = dict(publish_id=f"client{number:026d}", entry_id=0, batch_size=1, partition=-1, payload=b"client-%d" % number)
    table.append(MESSAGES.rows([row]))
"""


def test_two_processes_publish_at_once_and_lose_nothing(spark, root, layout):
    topic = create_topic(layout, "t")
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(topic.path), "40"], cwd=REPOSITORY)
    for number in range(5):
        publish(spark.range(20).selectExpr(f"concat('spark-{number}-', id) as payload"), root, "t")
    assert client.wait(60) == 0
    payloads = read(spark, layout, "t").selectExpr("cast(payload as string) payload")
    expected = [(f"client-{number}",) for number in range(40)] + [
        (f"spark-{number}-{row}",) for number in range(5) for row in range(20)
    ]
    assert_df_equality(payloads, spark.createDataFrame(expected, payloads.schema), ignore_row_order=True)
    assert_ids_are_runs(layout, "t")
    assert TableLog(topic.path).latest() == 45
