"""Spark reads tables whose files were joined and whose logs were shortened as it reads others."""

import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

import pulsar_spark as pulsar
from pulsar_spark.frames import consume, publish, read_messages
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta import checkpoints
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of, open_table
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.storage.upkeep import shortening
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views import create_views
from tests.storage.test_housekeeping import CHOSEN_SECONDS, TOPIC, age, few_make_one, keep_all  # noqa: F401 - a fixture
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

pytestmark = pytest.mark.usefixtures("few_make_one")
N = 8


def after_rounds(root: Path) -> SparkEngine:
    """So many rounds, each of which has delivered a message."""
    engine, on = new_engine(None, root), On(TOPIC)
    engine.create_topic(TOPIC)
    for number in range(N):
        engine.publish(TOPIC, -1, [1], payload=b"%d" % number)
        engine.round([on.subscribe("A"), on.flow("A", 1)], number)
    engine.restart(9000)
    return engine


def test_tables_are_read_travelled_in_and_written_after_housekeeping(spark, tmp_path):
    engine, on = after_rounds(tmp_path / "root"), On(TOPIC)
    path = read_topic(engine.layout, TOPIC).path
    for what, count in (before := keep_all(engine.layout)).items():
        engine.rounds.note_housekeeping(TOPIC, what, count)
    begins, latest = TableLog(path).earliest(), TableLog(path).latest()
    assert begins > 1
    engine.publish(TOPIC, -1, [1], payload=b"8")
    engine.round([on.flow("A", 1)], 10_000)
    assert spark.read.format("delta").load(str(path)).count() == N + 1
    for version in (begins, latest):
        assert spark.read.format("delta").option("versionAsOf", version).load(str(path)).count() == N
    assert spark.sql(f"DESCRIBE HISTORY delta.`{path}`").selectExpr("max(version)").first()[0] == latest + 1
    found = read_messages(spark, engine.layout.root, TOPIC).select("position", "payload").collect()
    assert sorted((row[0], bytes(row[1])) for row in found) == [(number, b"%d" % number) for number in range(N + 1)]
    publish(spark.createDataFrame([(b"9",)], "payload binary"), engine.layout.root, TOPIC)
    create_views(spark, engine.layout.root)
    said = spark.sql("SELECT status, entries FROM housekeeping").collect()
    assert {row[0]: row[1] for row in said} == before
    delivered = spark.sql("SELECT first FROM history WHERE event = 'delivered' ORDER BY first").collect()
    assert [row[0] for row in delivered] == list(range(N + 1)) and read_latest(engine.layout).round > N


def test_the_broker_s_tables_are_travelled_in_as_long_as_they_say_and_vacuumed_by_it(spark, tmp_path):
    engine, on = after_rounds(tmp_path / "root"), On(TOPIC)
    tables = [engine.layout.broker_table(name) for name in ("cursor_ledger", "ledgers")]
    before = {path: TableLog(path).latest() for path in tables}
    delta = spark.read.format("delta")
    rows = {path: delta.load(str(path)).count() for path in tables}
    assert keep_all(engine.layout, time_travel_seconds=3600)["files_joined"]
    for path in tables:
        assert TableLog(path).latest() > before[path]
        assert delta.option("versionAsOf", before[path]).load(str(path)).count() == rows[path]
        assert ("delta.deletedFileRetentionDuration", "interval 3600 seconds") in {
            (row.key, row.value) for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{path}`").collect()
        }
        files = len(list(path.glob("*.parquet")))
        spark.sql(f"VACUUM delta.`{path}`")
        assert len(list(path.glob("*.parquet"))) == files, "what left it left it just now"
        assert delta.load(str(path)).count() == delta.option("versionAsOf", before[path]).load(str(path)).count()
    engine.round([on.ack(0, N - 1)], 10_000)
    assert read_latest(engine.layout).round > N


def test_views_and_frames_of_before_are_read_where_only_the_last_versions_stay(spark, tmp_path):
    """Some were read already, and some only when the log began later and their files were gone."""
    engine, on = after_rounds(tmp_path / "root"), On(TOPIC)
    paths = [engine.layout.broker_table(name) for name in ("cursor_ledger", "ledgers")]
    create_views(spark, engine.layout.root)
    frames = [(path, spark.read.format("delta").load(str(path))) for path in paths for _ in range(2)]
    assert {path: frame.count() for path, frame in frames[::2]} == {
        path: dataset_of(path).count_rows() for path in paths
    }
    keep_all(engine.layout, time_travel_seconds=3600, versions=4)
    age(tmp_path / "root", 1 / 144)  # ten minutes
    for number in range(N, 2 * N):
        engine.publish(TOPIC, -1, [1], payload=b"%d" % number)
        engine.round([on.flow("A", 1), on.ack(number - 1)], 10_000 + number)
        keep_all(engine.layout, time_travel_seconds=3600, versions=4)
    assert all(TableLog(path).earliest() > 1 for path in paths)
    for path, frame in frames:
        assert frame.count() == dataset_of(path).count_rows()
    cursor = spark.sql("SELECT read_position FROM cursors").first()
    delivered = spark.sql("SELECT sum(last - first + 1) FROM history WHERE event = 'delivered'").first()
    assert (cursor[0], delivered[0]) == (2 * N, 2 * N)


def frames_of(spark, layout: Layout, path: Path) -> list[DataFrame]:
    """A topic as it is, opened in three ways, the first of which says so."""
    delta, version = spark.read.format("delta"), TableLog(path).latest()
    as_it_is = delta.option("versionAsOf", version).load(str(path))
    return [as_it_is, spark.read.format("delta").load(str(path)), read_messages(spark, layout.root, TOPIC)]


def test_who_reads_while_files_are_joined_goes_on(spark, tmp_path, monkeypatch):
    """A DataFrame consumer between a delivery and its reading; views, frames and an earlier version that were opened
    before, as long as checkpoints stay that were the newest then."""
    for module in (checkpoints, shortening):
        monkeypatch.setattr(module, "CHOSEN_SECONDS", CHOSEN_SECONDS)
    layout, received, joined = Layout(tmp_path / "root"), [], 0
    with PlainBroker(layout.root):
        client = pulsar.Client(f"delta:{layout.root}")
        producer = client.create_producer(TOPIC)

        def send(first: int) -> None:
            for number in range(first, first + N):
                producer.send(b"%d" % number)

        send(0)
        path = read_topic(layout, TOPIC).path

        def keep_house_and_read(messages, delivery) -> None:
            nonlocal joined
            joined += keep_all(layout, time_travel_seconds=10**6)["files_joined"]
            received.extend(int(row[0]) for row in messages.orderBy("position").select("payload").collect())

        for lap in range(3):
            options = {"initial_position": "Earliest", "max_messages": 5, "available_now": True}
            with consume(spark, layout.root, TOPIC, "s", keep_house_and_read, **options) as consumption:
                assert consumption.await_termination(60)
            assert consumption.last_progress["error"] is None
            if lap == 0:
                create_views(spark, layout.root)
                frames = frames_of(spark, layout, path)
            send(N * (lap + 1))
        assert received == list(range(3 * N)) and joined >= 3 * N
        assert len(open_table(path).file_uris()) <= 3 * N // 4 + N
        assert frames[0].count() == N and all(frame.count() in (N, 3 * N, 4 * N) for frame in frames)
        assert spark.sql("SELECT mark_delete_position FROM cursors").first()[0] == 3 * N - 1
        assert spark.sql("SELECT sum(last - first + 1) FROM history WHERE event = 'delivered'").first()[0] == 3 * N
        client.close()


def test_a_log_that_begins_later_is_travelled_in_by_version_and_by_time(spark, tmp_path):
    """As after Delta's own clean-up: the earliest version is the one at which the log begins, for every question."""
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    path = read_topic(engine.layout, TOPIC).path
    log, then = TableLog(path), datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=20)
    for number in range(1, 7):
        engine.publish(TOPIC, -1, [1])
        if number == 4:
            make_checkpoint(path)
    for version in range(7):
        os.utime(log.file(version), ((then + timedelta(hours=version)).timestamp(),) * 2)
    assert sum(shorten(path, 6, time.time())) == 4 and sorted(log.versions()) == [4, 5, 6]

    def read(**options) -> int:
        return spark.read.format("delta").options(**options).load(str(path)).count()

    at = {hours: (then + timedelta(hours=hours)).strftime("%Y-%m-%d %H:%M:%S") for hours in (3.5, 4, 4.5, 5, 6)}
    assert [read(versionAsOf=version) for version in (4, 5, 6)] == [4, 5, 6]
    assert [read(timestampAsOf=at[hours]) for hours in (4, 4.5, 5, 6)] == [4, 4, 5, 6]
    for options, said in (
        ({"versionAsOf": 3}, r"version 3.*\[4, 6\]"),
        ({"timestampAsOf": at[3.5]}, r"(?i)before the earliest version"),
    ):
        with pytest.raises(Exception, match=said):
            read(**options)
    assert [row.version for row in spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()] == [6, 5, 4]
    table = DeltaTable(str(path))
    table.load_as_version(then + timedelta(hours=5.5))
    assert table.version() == 5
    for start in (0, 3):
        with pytest.raises(Exception, match=rf"(?i)version {start}.*\[4, 6\]"):
            stream = spark.readStream.format("delta").option("startingVersion", start).load(str(path))
            stream.writeStream.format("memory").queryName(f"from_{start}").trigger(
                availableNow=True
            ).start().awaitTermination()
    spark.sql(f"RESTORE TABLE delta.`{path}` TO TIMESTAMP AS OF '{at[5]}'")
    assert read() == 5
    assert read_definition(path).table == "messages"
