"""Rows of several consumers of a session, split at once: the same that each reads by itself."""

import tempfile
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from pulsar_spark.frames import publish
from pulsar_spark.frames.deliveries import split_reads
from pulsar_spark.frames.deliveries.lane_deliveries import LaneRange
from pulsar_spark.frames.deliveries.lane_frames import read_lane
from pulsar_spark.protocol.keys.hash_ranges import SLOTS
from pulsar_spark.protocol.keys.lanes import HashRange, LaneHashes
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import create_topic
from tests.admin.broker_double import number

LANES = [
    LaneHashes(SLOTS, (HashRange(0, 30_000), HashRange(60_000, 65_535))),
    LaneHashes(SLOTS, (HashRange(30_001, 59_999),)),
]
COLUMNS = ["partition_key", "payload", "properties", "sticky_key_hash"]
ROUND = 7


@pytest.fixture
def topic(spark, root, layout, monkeypatch, request):
    """600 messages, of one publish where that is asked for; of two in four files, half without a stored hash, else."""
    monkeypatch.setattr(split_reads, "LEAST_ENTRIES", 1)
    topic, is_one = create_topic(layout, "t"), getattr(request, "param", 2) == 1
    rows = spark.range(0, 600 if is_one else 300, 1, 2)
    rows = rows.selectExpr("cast(id as string) payload", "concat('k', id % 90) partition_key")
    publish(rows.selectExpr("*", "map('a', payload) properties"), root, "t", sort_by_key=True)
    if not is_one:
        publish(rows, root, "t")
    number(layout, topic)
    return topic


@pytest.fixture
def folders(tmp_path, monkeypatch) -> Path:
    """Where files are split to."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


@pytest.fixture
def dealt(spark, topic, folders):
    """What a round dealt: to "a" and "b", who are of this process, parts of the topic by the first lane and by the
    second, in one range and in two; and to "c", who is not, by the first."""

    def lane_range(lane: LaneHashes, first: int, last: int) -> LaneRange:
        return LaneRange(PositionRange(-1, first, last, 2), lane, last - first, ROUND)

    found = {
        "a": [lane_range(LANES[0], 10, 400)],
        "b": [lane_range(LANES[1], 20, 100), lane_range(LANES[1], 150, 599)],
        "c": [lane_range(LANES[0], 401, 599)],
    }
    rows = [(consumer_id, each) for consumer_id, ranges in found.items() for each in ranges]
    key = topic.topic_id, "s", ROUND
    for consumer_id in "ab":
        split_reads.enter(consumer_id, spark)
    split_reads.note_delivery(key, -1, "a", lambda: rows)
    split_reads.note_delivery(key, -1, "b", lambda: rows)
    yield found
    for consumer_id in "ab":
        split_reads.leave(consumer_id)
    assert not list(folders.iterdir()) and not split_reads._rounds and not split_reads._members


def read(spark, layout, topic, consumer_id, ranges, columns=COLUMNS, with_payload=True):
    ledgers = LedgerIndex(layout)
    return split_reads.read_split(spark, topic, ledgers, "s", consumer_id, ranges, columns, with_payload)


@pytest.mark.parametrize("topic", [1, 2], indirect=True)
@pytest.mark.parametrize("columns", [COLUMNS, None])
def test_each_reads_its_own_rows(spark, layout, topic, dealt, columns):
    """However many publishes they are of, and with what all rows of one have in common."""
    for consumer_id, lane in zip("ab", LANES):
        found = read(spark, layout, topic, consumer_id, dealt[consumer_id], columns)
        expected = read_lane(spark, topic, LedgerIndex(layout), lane, dealt[consumer_id], columns, True)
        assert found.columns == expected.columns and found.count() > 100
        found, expected = (each.withColumn("properties", F.to_json("properties")) for each in (found, expected))
        assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def test_files_are_split_once_and_go_with_the_answers(spark, layout, topic, dealt, folders):
    assert read(spark, layout, topic, "a", dealt["a"]).count()
    (folder,) = folders.iterdir()
    assert {each.name for each in folder.iterdir()} == {"a", "b", ".held"}
    split_reads.release_up_to("a", ROUND)
    assert {each.name for each in folder.iterdir()} == {"b", ".held"}
    split_reads.release_up_to("b", ROUND - 1)
    assert read(spark, layout, topic, "b", dealt["b"]).count()
    assert [*folders.iterdir()] == [folder]
    split_reads.release_up_to("b", ROUND)
    assert not [*folders.iterdir()]


def test_who_asks_otherwise_reads_by_itself(spark, layout, topic, dealt):
    """For a part of what was dealt, for other columns than the first, or outside of the process."""
    assert read(spark, layout, topic, "c", dealt["c"]) is None
    assert read(spark, layout, topic, "b", dealt["b"][:1]) is None
    assert read(spark, layout, topic, "b", dealt["b"], ["properties"]) is None
    assert read(spark, layout, topic, "b", dealt["b"], with_payload=False) is None
    assert read(spark, layout, topic, "a", dealt["a"]) is not None


@pytest.mark.parametrize("what", ["few", "large", "damaged", "alone"])
def test_where_it_does_not_pay_or_work_each_reads_by_itself(spark, layout, topic, dealt, folders, monkeypatch, what):
    if what == "few":
        monkeypatch.setattr(split_reads, "LEAST_ENTRIES", 10**6)
    elif what == "large":
        monkeypatch.setattr(split_reads, "MOST_BYTES", 1)
    elif what == "alone":
        split_reads.leave("b")
    else:
        for file in Path(topic.path).glob("*.parquet"):
            whole = file.read_bytes()
            file.write_bytes(whole[:4] + b"\0" * 200 + whole[204:])
    assert read(spark, layout, topic, "a", dealt["a"]) is None
    assert not [*folders.iterdir()]
