"""Spark reads tables whose files were joined and whose logs were shortened as it reads others."""

import os
import time
from datetime import datetime, timedelta, timezone

import pytest
from deltalake import DeltaTable

from pulsar_spark.frames import publish, read_messages
from pulsar_spark.storage.checkpoints import make_checkpoint
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.shortening import shorten
from pulsar_spark.storage.tables import read_definition
from pulsar_spark.storage.topics import read_topic
from pulsar_spark.views import create_views
from tests.requests import On
from tests.spark_engine import new_engine
from tests.storage.test_housekeeping import TOPIC, few_make_one, keep  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("few_make_one")
N = 8


def test_tables_are_read_travelled_in_and_written_after_housekeeping(spark, tmp_path):
    engine, on = new_engine(None, tmp_path / "root"), On(TOPIC)
    engine.create_topic(TOPIC)
    for number in range(N):
        engine.publish(TOPIC, -1, [1], payload=b"%d" % number)
        engine.round([on.subscribe("A"), on.flow("A", 1)], number)
    engine.restart(9000)
    path = read_topic(engine.layout, TOPIC).path
    for what, count in (before := keep(engine)).items():
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
