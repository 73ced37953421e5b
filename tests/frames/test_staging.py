"""What Spark writes for a table before its one commit: files, their statistics, and what is left when it does not come
to that."""

import os
from datetime import datetime, timezone

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as F

from pulsar_spark.errors import InvalidConfiguration, MessageTooBig, TopicNotFound
from pulsar_spark.frames import publish
from pulsar_spark.storage.delta import staging
from pulsar_spark.storage.delta.file_statistics import file_statistics, statistics
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.staged_files import staging_folder
from pulsar_spark.storage.delta.staging import staged
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import create_topic, delete_topic, read_topic
from pulsar_spark.storage.upkeep.upkeep import vacuum
from pulsar_spark.table_specs import MESSAGES

TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
ROW = {
    "publish_id": "018f",
    "entry_id": 0,
    "batch_size": 1,
    "partition": -1,
    "payload": b"x",
    "publish_time": datetime(2024, 1, 1, tzinfo=timezone.utc),
}


def left(topic):
    return list(staging_folder(topic.path).glob("*"))


def test_a_footer_says_what_the_rows_say(spark, tmp_path):
    columns = {
        "partition_key": "case when id > 2 then concat('k', id) end",
        "payload": "cast(repeat('ä', int(id)) as binary)",
        "entry_id": "id",
        "sequence_id": "cast(null as bigint)",
        "batch_size": "cast(id + 1 as int)",
        "properties": "map('a', string(id))",
        "event_time": "timestamp_micros(253402300800000000 + id)",
        "deliver_at_time": "timestamp_micros(-124271193600000000)",
        "publish_time": "timestamp_micros(1700000000123456 + id)",
        "producer_name": "concat(repeat('z', 300), id)",
        "publish_id": "'one'",
    }
    rows = spark.range(5).selectExpr(*(f"{text} as {name}" for name, text in columns.items()))
    with staged(rows.coalesce(1), tmp_path / "t", ()) as (file,):
        written = pq.read_table(file.source)
        found = file_statistics(pq.read_metadata(file.source))
    expected = statistics(written)
    assert found == expected
    assert set(found["minValues"]) == set(columns) - {"payload", "properties", "sequence_id"}


@pytest.mark.parametrize("sort_by_key", [False, True])
def test_of_a_text_too_long_for_a_footer_no_bounds_are_said(spark, root, layout, sort_by_key):
    """By the tasks that write and by Spark's writer."""
    key = "k" * 5000
    frame = spark.createDataFrame([(b"1", key)], "payload binary, partition_key string")
    publish(frame, root, "t", sort_by_key=sort_by_key)
    topic = read_topic(layout, "t")
    [added] = [file for commit in TableLog(topic.path).commits(0) for file in commit.added]
    assert "partition_key" not in {**added.min_values, **added.max_values}
    assert added.null_counts.get("partition_key", 0) == 0
    assert dataset_of(topic.path).to_table(filter=pc.field("partition_key") == key)["partition_key"].to_pylist() == [
        key
    ]


def test_others_append_while_files_are_written(spark, layout, root):
    topic = create_topic(layout, "t")
    publishing = AppendTable(topic.path)
    with staged(spark.createDataFrame(MESSAGES.rows([ROW])), topic.path, ()) as files:
        assert AppendTable(topic.path).append(MESSAGES.rows([{**ROW, "publish_id": "018e"}])) == 1
        assert publishing.append(files) == 2
    assert sorted(dataset_of(topic.path).to_table()["publish_id"].to_pylist()) == ["018e", "018f"]
    assert left(topic) == []


def test_a_publish_that_fails_leaves_nothing(spark, root, layout):
    topic = create_topic(layout, "t")
    with pytest.raises(MessageTooBig):
        publish(spark.range(100).selectExpr("repeat('x', int(id)) as payload"), root, "t", max_message_size=98)
    assert TableLog(topic.path).latest() == 0
    assert left(topic) == []
    assert list(topic.path.rglob("*.parquet")) == []


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_deleted_while_files_are_written_is_named(spark, root, layout, monkeypatch, is_made_anew):
    topic, append = create_topic(layout, "t"), AppendTable.append

    def append_late(table, *arguments):
        delete_topic(layout, "t")
        if is_made_anew:
            create_topic(layout, "t")
        return append(table, *arguments)

    monkeypatch.setattr(AppendTable, "append", append_late)
    with pytest.raises(TopicNotFound, match="deleted meanwhile"):
        publish(spark.createDataFrame([(b"1",)], "payload binary"), root, "t")
    assert left(topic) == []
    assert not is_made_anew or TableLog(topic.path).latest() == 0


@pytest.mark.parametrize("is_by_tasks", [True, False])
def test_files_that_tasks_write_where_the_driver_sees_none_are_named(spark, root, layout, monkeypatch, is_by_tasks):
    """A root that machines see as folders of their own."""
    topic, told = create_topic(layout, "t"), []

    def lose(write):
        def write_elsewhere(*arguments):
            told.append(write(*arguments))
            for path in staging_folder(topic.path).rglob("*.parquet"):
                path.unlink()
            return told[-1]

        return write_elsewhere

    if is_by_tasks:
        monkeypatch.setattr(staging, "write_task_files", lose(staging.write_task_files))
    else:
        monkeypatch.setattr(DataFrameWriter, "parquet", lose(DataFrameWriter.parquet))
    rows = spark.createDataFrame([(b"1",)], "payload binary")
    with pytest.raises(InvalidConfiguration, match="the driver cannot see a file .*under the same path"):
        publish(rows, root, "t", sort_by_key=not is_by_tasks)
    assert told and TableLog(topic.path).latest() == 0 and left(topic) == []


def test_files_of_lost_tasks_are_left_out_whatever_the_session_commits_by(spark, root, monkeypatch):
    """Platforms have protocols of their own, with which a folder holds more than what was committed."""
    protocol = "spark.sql.sources.commitProtocolClass"
    others = "org.apache.spark.internal.io.HadoopMapReduceCommitProtocol"
    seen, write = [], DataFrameWriter.parquet

    def parquet(writer, path):
        seen.append(spark.conf.get(protocol).rpartition(".")[2])
        write(writer, path)

    monkeypatch.setattr(DataFrameWriter, "parquet", parquet)
    spark.conf.set(protocol, others)
    try:
        rows = spark.range(3).selectExpr("cast(id as string) payload", "cast(id as string) key")
        assert publish(rows, root, "t", sort_by_key=True).messages == 3
        assert seen == ["SQLHadoopMapReduceCommitProtocol"] and spark.conf.get(protocol) == others
    finally:
        spark.conf.unset(protocol)


def test_settings_of_the_session_are_as_before(spark, root):
    spark.conf.set(TIMESTAMP_TYPE, "INT96")
    try:
        publish(spark.createDataFrame([(b"1", "k")], "payload binary, key string"), root, "t", sort_by_key=True)
        assert spark.conf.get(TIMESTAMP_TYPE) == "INT96"
    finally:
        spark.conf.unset(TIMESTAMP_TYPE)


def test_instants_of_any_year_arrive(spark, root, layout):
    years = [-1000, 1, 1500, 1899, 2262, 12000]
    frame = (
        spark.range(1)
        .select(F.explode(F.array(*map(F.lit, years))).alias("year"))
        .select(
            F.lit(b"1").alias("payload"),
            F.make_timestamp("year", F.lit(1), F.lit(1), F.lit(0), F.lit(0), F.lit(0)).alias("event_time"),
        )
    )
    publish(frame, root, "t")
    found = (
        spark.read.format("delta").load(str(read_topic(layout, "t").path)).select(F.year("event_time").alias("year"))
    )
    assert sorted(row["year"] for row in found.collect()) == years


def test_what_a_crash_left_is_vacuumed_when_it_is_old(layout, root):
    topic = create_topic(layout, "t")
    for name, age_hours in (("old", 3), ("young", 1)):
        file = staging_folder(topic.path) / name / "_temporary" / "part.parquet"
        file.parent.mkdir(parents=True)
        file.touch()
        for path in (file, *list(file.parents)[:2]):
            then = path.stat().st_mtime - 3600 * age_hours
            os.utime(path, (then, then))
    old = str(staging_folder(topic.path) / "old")
    assert vacuum(layout, topic.path, hours=2, dry_run=True) == [old]
    assert vacuum(layout, topic.path, hours=2) == [old]
    assert [folder.name for folder in left(topic)] == ["young"]
