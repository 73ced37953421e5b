"""Files as they were published, read by themselves: the same rows as through Delta, by code that is the same for all
deliveries."""

import pytest
from chispa import assert_df_equality

from pulsar_spark.frames.deliveries import published_files
from pulsar_spark.frames.deliveries.published_files import read_published
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.transforms import stretches
from tests.admin.broker_double import number
from tests.frames.test_slices import expected, located, topic  # noqa: F401
from tests.support.positions import read_positions


def read(spark, layout, topic, ranges, columns=None, with_payload=True):  # noqa: F811
    return read_published(spark, topic, LedgerIndex(layout), ranges, columns, with_payload, with_chunks=True)


@pytest.mark.parametrize(
    "ranges",
    [
        [PositionRange(0, 3, 3)],
        [PositionRange(1, 0, 24, 2)],
        [PositionRange(0, 8, 16), PositionRange(1, 24, 24), PositionRange(0, 20, 21)],
        [PositionRange(0, 0, 1), *(PositionRange(1, at, at) for at in range(1, 25, 3)), PositionRange(0, 7, 9)],
    ],
    ids=["one message", "a partition", "several", "single ones"],
)
def test_ranges_are_read_exactly(spark, layout, topic, ranges):  # noqa: F811
    found = read(spark, layout, topic, ranges)
    assert found.columns == read_positions(spark, layout, topic, ranges).columns
    assert_df_equality(located(found), expected(spark, *ranges), ignore_row_order=True, ignore_nullable=True)
    chosen = read(spark, layout, topic, ranges, ["properties", "payload"], with_payload=False)
    assert chosen.columns == ["properties", "partition", "ledger_id", "position", "redelivery_count"]


def looks_at_rows(frame) -> bool:
    return "Filter (" in frame._jdf.queryExecution().executedPlan().toString()


def test_where_all_of_each_file_is_meant_no_row_is_looked_at(spark, layout, topic):  # noqa: F811
    whole = [PositionRange(0, 0, 24), PositionRange(1, 0, 9)]
    found = read(spark, layout, topic, whole)
    assert not looks_at_rows(found)
    assert_df_equality(located(found), expected(spark, *whole), ignore_row_order=True, ignore_nullable=True)
    assert looks_at_rows(read(spark, layout, topic, [PositionRange(0, 0, 23)]))


def test_a_file_of_which_a_run_is_meant_is_not_all_meant(spark, layout):
    """Entries of unequal size make several runs of a file."""
    topic = create_topic(layout, "batches")  # noqa: F811
    rows = [(0, 0, 2), (0, 1, 2), (1, 0, 3), (1, 1, 3), (1, 2, 3)]
    same = {"publish_id": "p" * 32, "partition": -1}
    columns = ("entry_id", "batch_index", "batch_size")
    AppendTable(topic.path).append(
        MESSAGES.rows([{**same, **dict(zip(columns, row)), "payload": b"%d-%d" % row[:2]} for row in rows])
    )
    number(layout, topic)
    for position in (0, 1):
        found = read(spark, layout, topic, [PositionRange(-1, position, position, batch_size=2 + position)])
        assert {row.position for row in found.collect()} == {position} and looks_at_rows(found)


def test_deliveries_with_other_bounds_have_the_same_code(spark, layout, topic):  # noqa: F811
    def code(*spans) -> list[str]:
        ranges = [PositionRange(0, first, last) for first, last in spans]
        plan = read(spark, layout, topic, ranges)._jdf.queryExecution()
        stages = plan.debug().codegenToSeq()
        return [stages.apply(at)._2() for at in range(stages.size())]

    assert code((1, 2), (4, 8)) == code((0, 1), (3, 7)) == code((1, 1), (3, 3), (14, 14))


def test_of_a_part_of_a_file_bounds_are_pushed_down(spark, layout, topic, monkeypatch):  # noqa: F811
    """Around what is meant of each file, as few as code can have."""
    spans = [PositionRange(0, 3, 4), PositionRange(1, 7, 8), PositionRange(0, 20, 21)]

    def pushed() -> str:
        plan = read(spark, layout, topic, spans)._jdf.queryExecution().executedPlan().toString()
        return plan[plan.index("PushedFilters") :].split("ReadSchema")[0]

    assert "entry_id" not in pushed().replace("IsNotNull(entry_id)", "")
    monkeypatch.setattr(published_files, "_BLOCK_BITS", 0)
    assert "OrEqual(entry_id" in pushed()
    rows = located(read(spark, layout, topic, spans))
    assert_df_equality(rows, expected(spark, *spans), ignore_row_order=True, ignore_nullable=True)
    monkeypatch.setattr(published_files, "_MOST_BOUNDS", 1)
    rows = located(read(spark, layout, topic, spans))
    assert_df_equality(rows, expected(spark, *spans), ignore_row_order=True, ignore_nullable=True)


def test_what_must_be_read_through_delta_is_not_read(spark, layout, topic, monkeypatch):  # noqa: F811
    """Entries delivered not equally often, or in part; rewritten files; more of them, or stretches, than pay."""
    one = PositionRange(0, 3, 3)
    assert read(spark, layout, topic, [one, PositionRange(0, 5, 5, 1)]) is None
    assert read(spark, layout, topic, [one._replace(ack_set=(1,), batch_size=2)]) is None
    many = [PositionRange(0, at, at) for at in range(0, 10, 2)]
    assert read(spark, layout, topic, many) is not None
    with monkeypatch.context() as patched:
        patched.setattr(published_files, "MOST_DIRECT_FILES", 1)
        assert read(spark, layout, topic, many) is None
    with monkeypatch.context() as patched:
        patched.setattr(stretches, "_MOST_PARTS", 1)
        patched.setattr(published_files, "MOST_BORDERS", 7)
        assert read(spark, layout, topic, many) is None
        patched.setattr(published_files, "MOST_BORDERS", 8)
        assert read(spark, layout, topic, many) is not None
    spark.sql(f"DELETE FROM delta.`{topic.path}` WHERE entry_id % 4 = 1")
    assert read(spark, layout, topic, many) is None
