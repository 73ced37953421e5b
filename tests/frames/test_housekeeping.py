"""Spark reads tables whose files were joined and whose logs were shortened as it reads others."""

import pytest

from pulsar_spark.frames import publish, read_messages
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.log import TableLog
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
