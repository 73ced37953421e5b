"""Reading a topic by position: every message of the ranges, with its place, and no other."""

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from pulsar_spark.errors import CorruptState
from pulsar_spark.frames import publish
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries import slices
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import DELIVERED, MESSAGES
from tests.admin.broker_double import number
from tests.support.positions import read_positions


@pytest.fixture
def topic(spark, root, layout):
    """Three publishes of 20, 10 and 20 messages to two partitions; each partition has positions 0 to 24."""
    topic = create_topic(layout, "t", 2)
    for first, last in ((0, 20), (20, 30), (30, 50)):
        publish(
            spark.range(first, last, 1, 2).select(
                F.col("id").cast("string").alias("payload"), (F.col("id") % 2).cast("int").alias("partition")
            ),
            root,
            "t",
        )
    number(layout, topic)
    return topic


def expected(spark, *ranges):
    """Message n is at position n // 2 of partition n % 2; publishes are ledgers 1, 2 and 3."""
    rows = [
        (
            str(2 * position + range_.partition),
            range_.partition,
            1 if position < 10 else 2 if position < 15 else 3,
            position,
            range_.redelivery_count,
        )
        for range_ in ranges
        for position in range(range_.first, range_.last + 1)
    ]
    return spark.createDataFrame(
        rows, "payload string, partition int, ledger_id long, position long, redelivery_count int"
    )


def located(read):
    return read.select(
        F.col("payload").cast("string").alias("payload"), "partition", "ledger_id", "position", "redelivery_count"
    )


@pytest.mark.parametrize("max_bounds", [32, 0], ids=["bounds", "join"])
@pytest.mark.parametrize(
    "ranges",
    [
        [PositionRange(0, 3, 3)],
        [PositionRange(1, 0, 24, 2)],
        [PositionRange(0, 8, 16), PositionRange(1, 24, 24, 1), PositionRange(0, 20, 21, 5)],
        [],
    ],
    ids=["one message", "a partition", "several", "none"],
)
def test_ranges_are_read_exactly(spark, layout, topic, monkeypatch, ranges, max_bounds):
    monkeypatch.setattr(slices, "MAX_BOUNDS", max_bounds)
    read = located(read_positions(spark, layout, topic, ranges))
    assert_df_equality(
        read, expected(spark, *ranges), ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
    )


@pytest.mark.parametrize("max_bounds", [32, 4, 0], ids=["clusters", "few bounds", "no bounds"])
def test_ranges_between_those_of_others_are_read_exactly(spark, layout, topic, monkeypatch, max_bounds):
    """As Key_Shared deals them: single entries, short ranges, and one that was delivered twice."""
    monkeypatch.setattr(slices, "MAX_BOUNDS", max_bounds)
    monkeypatch.setattr(slices, "WIDE_GAP", 2)
    mine = [PositionRange(0, position, position, position % 3) for position in range(0, 20, 2)]
    mine += [PositionRange(1, 2, 2), PositionRange(1, 7, 11, 1), PositionRange(0, 21, 24), PositionRange(1, 14, 15)]
    mine += [PositionRange(0, position, position, 7) for position in (1, 5, 9)]
    mine += [PositionRange(1, position, position) for position in range(17, 25)]
    monkeypatch.setattr(slices, "MAX_BOUNDS", min(max_bounds, len(mine) - 1))
    read = located(read_positions(spark, layout, topic, [*mine, PositionRange(1, 10, 11, 5)]))
    assert_df_equality(read, expected(spark, *mine), ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


def test_thousands_of_ranges_make_no_longer_plan(spark, layout, topic):
    """What a plan says of them is a bounded number of bounds."""
    wanted = [PositionRange(0, position, position) for position in range(0, 25, 2)] * 3
    pieces = slices.find_pieces(slices.LedgerIndex(layout), topic, wanted)
    assert [piece.first_position for piece in pieces] == list(range(0, 25, 2))
    many = [piece._replace(first_entry_id=entry, last_entry_id=entry) for piece in pieces for entry in range(500)]
    plan = slices.read_pieces(spark, topic, many)._jdf.queryExecution().optimizedPlan().toString()
    assert 0 < plan.count("publish_id#") < 4 * slices.MAX_BOUNDS


def test_the_payload_may_be_left_out(spark, layout, topic):
    read = read_positions(spark, layout, topic, [PositionRange(0, 0, 0)], with_payload=False)
    assert set(read.columns) == {*DELIVERED} - {"payload"} | {"ledger_id", "position", "redelivery_count"}
    chosen = read_positions(spark, layout, topic, [PositionRange(0, 0, 0)], columns=["payload"])
    assert chosen.columns == ["payload", "partition", "ledger_id", "position", "redelivery_count"]


def test_a_position_without_a_ledger_is_corrupt(spark, layout, topic):
    with pytest.raises(CorruptState, match="position 25 of topic .*, partition 0"):
        read_positions(spark, layout, topic, [PositionRange(0, 20, 25)])


@pytest.mark.parametrize("max_bounds", [32, 0], ids=["bounds", "join"])
def test_of_a_batch_only_what_is_unacknowledged(spark, layout, monkeypatch, max_bounds):
    monkeypatch.setattr(slices, "MAX_BOUNDS", max_bounds)
    topic = create_topic(layout, "batches")
    AppendTable(topic.path).append(
        MESSAGES.rows(
            [
                {
                    "publish_id": "p" * 32,
                    "entry_id": entry,
                    "batch_index": index,
                    "batch_size": 70,
                    "partition": -1,
                    "payload": f"{entry}-{index}".encode(),
                }
                for entry in range(2)
                for index in range(70)
            ]
        )
    )
    number(layout, topic)
    read = read_positions(spark, layout, topic, [PositionRange(-1, 1, 1, 1, (0b101, 0b10))]).selectExpr(
        "cast(payload as string) payload", "position"
    )
    assert_df_equality(
        read, spark.createDataFrame([("1-0", 1), ("1-2", 1), ("1-65", 1)], read.schema), ignore_row_order=True
    )
