"""Exactly once into Delta, over hand-written rounds: who wrote what, and who may write no more."""

import pytest
from chispa import assert_df_equality

from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, NotConnected
from pulsar_spark.frames import Delivery, to_delta
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.table_specs import CURSOR_LEDGER

CURSOR = {"topic": "persistent://public/default/t", "topic_id": "t-1", "partition": -1, "subscription": "s"}


@pytest.fixture
def commit_round(layout):
    """Commit the next round with deliveries (consumer, first, last) and perhaps a mark-delete position."""
    ledger, rounds = AppendTable(layout.broker_table("cursor_ledger")), []

    def commit(*deliveries, mark_delete=None):
        rounds.append(None)
        rows = [{"kind": "round", "round": len(rounds)}]
        if mark_delete is not None:
            rows.append({**CURSOR, "kind": "cursor", "round": len(rounds), "mark_delete_position": mark_delete})
        rows += [
            {
                **CURSOR,
                "kind": "range",
                "status": "pending",
                "round": len(rounds),
                "delivery_round": len(rounds),
                "consumer_id": consumer,
                "first": first,
                "last": last,
            }
            for consumer, first, last in deliveries
        ]
        ledger.append(CURSOR_LEDGER.rows(rows))
        return len(rounds)

    return commit


@pytest.fixture
def sink_of(layout, tmp_path):
    """A sink as a consumer opened it; all of one table."""

    def make():
        sink = to_delta(tmp_path / "sink")
        sink.open(layout, "t-1", "s")
        return sink

    return make


def deliver(spark, sink, consumer, round_number, first, last):
    messages = spark.range(first, last + 1, 1, 1).selectExpr(
        "cast(-1 as int) partition", "id as position", f"'{consumer}' as by"
    )
    sink(messages, Delivery(CURSOR["topic"], "t-1", "s", consumer, round_number, (PositionRange(-1, first, last),)))


def assert_written(spark, tmp_path, **positions_by):
    written = spark.read.format("delta").load(str(tmp_path / "sink")).select("by", "position")
    expected = [(consumer, position) for consumer, positions in positions_by.items() for position in positions]
    assert_df_equality(written, spark.createDataFrame(expected, written.schema), ignore_row_order=True)


def test_what_the_one_before_wrote_is_left_out(spark, tmp_path, sink_of, commit_round):
    first, second = sink_of(), sink_of()
    deliver(spark, first, "a", commit_round(("a", 0, 9)), 0, 9)
    commit_round(("a", 10, 19))  # a dies before it writes these, and before it acknowledges any
    deliver(spark, second, "b", commit_round(("b", 0, 24)), 0, 24)
    assert_written(spark, tmp_path, a=range(10), b=range(10, 25))


def test_single_entries_that_one_before_wrote_are_left_out(spark, tmp_path, sink_of, commit_round):
    """As Key_Shared deals them: every third entry is a's, which wrote the first hundred; b takes all of them over."""
    thirds = range(0, 600, 3)
    ranges = tuple(PositionRange(-1, position, position) for position in thirds)

    def deliver_thirds(sink, consumer, round_number, chosen):
        some = [(-1, range_.first, consumer) for range_ in chosen]
        messages = spark.createDataFrame(some, "partition int, position bigint, by string")
        sink(messages, Delivery(CURSOR["topic"], "t-1", "s", consumer, round_number, chosen))

    first, second = sink_of(), sink_of()
    deliver_thirds(first, "a", commit_round(*(("a", at, at) for at in thirds[:100])), ranges[:100])
    commit_round(*(("a", at, at) for at in thirds[100:]))
    deliver_thirds(second, "b", commit_round(*(("b", at, at) for at in thirds)), ranges)
    assert_written(spark, tmp_path, a=thirds[:100], b=thirds[100:])


def test_who_was_taken_over_writes_no_more(spark, tmp_path, sink_of, commit_round):
    first, second, third = sink_of(), sink_of(), sink_of()
    slow = commit_round(("a", 0, 9))
    deliver(spark, second, "b", commit_round(("b", 0, 9)), 0, 9)
    with pytest.raises(NotConnected, match="took its messages over"):
        deliver(spark, first, "a", slow, 0, 9)
    assert_written(spark, tmp_path, b=range(10))
    # The fence itself says nothing of what a wrote: a third consumer takes b's word, not the fence's.
    deliver(spark, third, "c", commit_round(("c", 0, 9)), 0, 9)
    assert_written(spark, tmp_path, b=range(10))


def test_a_fenced_consumer_that_wrote_nothing_leaves_nothing_out(spark, tmp_path, sink_of, commit_round):
    commit_round(("a", 0, 4))
    commit_round(("b", 0, 2))
    third = sink_of()
    deliver(spark, third, "c", commit_round(("c", 0, 4)), 0, 4)
    deliver(spark, sink_of(), "d", commit_round(("d", 3, 5)), 3, 5)
    assert_written(spark, tmp_path, c=range(5), d=[5])


def test_two_living_consumers_share_a_sink(spark, tmp_path, sink_of, commit_round):
    left, right = sink_of(), sink_of()
    together = commit_round(("a", 0, 4), ("b", 5, 9))
    deliver(spark, right, "b", together, 5, 9)
    deliver(spark, left, "a", together, 0, 4)
    deliver(spark, right, "b", commit_round(("b", 10, 11), mark_delete=9), 10, 11)
    assert_written(spark, tmp_path, a=range(5), b=range(5, 12))


def test_a_seek_back_writes_again(spark, tmp_path, sink_of, commit_round):
    sink = sink_of()
    deliver(spark, sink, "a", commit_round(("a", 0, 2)), 0, 2)
    commit_round(mark_delete=2)
    commit_round(mark_delete=-1)
    deliver(spark, sink, "b", commit_round(("b", 0, 2)), 0, 2)
    assert_written(spark, tmp_path, a=range(3), b=range(3))


def test_a_sink_serves_one_subscription(layout, tmp_path):
    sink = to_delta(tmp_path / "sink")
    sink.open(layout, "t-1", "s")
    with pytest.raises(InvalidConfiguration, match="one topic and subscription"):
        sink.open(layout, "t-1", "other")


def prices(messages):
    """A row for each of three keys, with the position that it had last."""
    return messages.selectExpr("position % 3 as item", "position", "by", "partition")


@pytest.mark.long
def test_a_merge_keeps_the_last_row_of_a_key_and_happens_once(spark, tmp_path, layout, commit_round):
    """Though a consumer dies between its merge and its answer, and its next delivery comes before the old one."""

    def merging():
        sink = to_delta(tmp_path / "sink", transform=prices, merge_on="item")
        sink.open(layout, "t-1", "s")
        return sink

    spark.createDataFrame([(0, -1, "before")], "item bigint, position bigint, by string").write.format("delta").save(
        str(tmp_path / "sink")
    )
    first, second = merging(), merging()
    written = commit_round(("a", 0, 9))
    deliver(spark, first, "a", written, 0, 9)
    assert first.rows_written == 3
    deliver(spark, first, "a", written, 0, 9)
    assert first.rows_written == 3, "the same transaction again changes nothing"
    deliver(spark, second, "b", commit_round(("b", 7, 10)), 7, 10)
    rows = spark.read.format("delta").load(str(tmp_path / "sink")).orderBy("item").collect()
    assert [tuple(row) for row in rows] == [(0, 9, "a"), (1, 10, "b"), (2, 8, "a")], "and no column is added"
    with pytest.raises(NotConnected, match="took its messages over"):
        deliver(spark, first, "a", commit_round(("a", 11, 12)), 11, 12)
    assert "merge_on=['item'], transform='tests.frames.test_delta_sink:prices'" in repr(second)


@pytest.mark.long
def test_keys_of_several_columns_may_be_null(spark, tmp_path, layout, commit_round):
    sink = to_delta(
        tmp_path / "sink",
        transform=lambda messages: messages.selectExpr(
            "if(position % 2 = 0, null, 'odd') as kind", "partition", "position"
        ),
        merge_on=["kind", "partition"],
    )
    sink.open(layout, "t-1", "s")
    for first in (0, 4):
        deliver(spark, sink, "a", commit_round(("a", first, first + 3)), first, first + 3)
    rows = spark.read.format("delta").load(str(tmp_path / "sink")).orderBy("position").collect()
    assert [(row.kind, row.position) for row in rows] == [(None, 6), ("odd", 7)]


def test_rows_to_merge_without_their_key_or_position_are_refused(spark, tmp_path, layout, commit_round):
    sink = to_delta(tmp_path / "sink", transform=lambda messages: messages.select("by"), merge_on="item")
    sink.open(layout, "t-1", "s")
    with pytest.raises(InvalidMessage, match=r"lack \['item', 'position'\], they have \['by'\]"):
        deliver(spark, sink, "a", commit_round(("a", 0, 1)), 0, 1)
    assert not (tmp_path / "sink").exists()


def test_a_transformation_that_returns_no_frame_is_named(spark, tmp_path, layout):
    sink = to_delta(tmp_path / "sink", transform=print)
    sink.open(layout, "t-1", "s")
    with pytest.raises(InvalidMessage, match="builtins:print returned a NoneType: return a Spark DataFrame"):
        deliver(spark, sink, "a", 1, 0, 1)


@pytest.mark.long
def test_a_table_of_a_catalog_is_created_and_written_once(spark, tmp_path, layout, commit_round):
    """Whether it is merged into or appended to; a name that is no Delta table, or in no schema, is refused."""
    spark.sql(f"CREATE SCHEMA sinks LOCATION '{tmp_path / 'a b'}'")
    try:
        for name, merge_on, rows in (("sinks.appended", None, 4), ("spark_catalog.sinks.merged", "position", 2)):
            for consumer in "ab":
                sink = to_delta(name, merge_on=merge_on, name=consumer if merge_on is None else "sink")
                sink.open(layout, "t-1", "s")
                deliver(spark, sink, consumer, commit_round((consumer, 0, 1)), 0, 1)
            assert spark.table(name).count() == rows
        spark.sql("CREATE TABLE sinks.plain (a INT) USING parquet")
        for name, words in (
            ("sinks.plain", "DELTA|no Delta table"),
            ("no.t", "no schema 'no'"),
            ("no.no.t", "no.no.t"),
        ):
            sink = to_delta(name)
            sink.open(layout, "t-1", "s")
            with pytest.raises(InvalidConfiguration, match=words):
                deliver(spark, sink, "a", 1, 0, 1)
    finally:
        spark.sql("DROP SCHEMA sinks CASCADE")
