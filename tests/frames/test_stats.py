"""Stats as a frame: the rows that ``tests/admin/test_activity.py`` holds to hand-written rounds, with the columns they
are documented by."""

from chispa import assert_df_equality

from pulsar_spark.frames import publish, stats
from pulsar_spark.views.stats_table import STATS


def test_stats_of_a_root_are_a_frame(spark, root, clock):
    for topic in ("a", "b"):
        publish(spark.range(60).selectExpr("cast(id as string) payload"), root, topic, clock=clock)
    found = stats(spark, root, clock=clock)
    assert found.columns == [column.name for column in STATS.columns]
    rows = found.select("topic", "partition", "subscription", "messages", "rate_in")
    expected = spark.createDataFrame(
        [(f"persistent://public/default/{topic}", -1, None, 60, 1.0) for topic in "ab"], rows.schema
    )
    assert_df_equality(rows, expected, ignore_row_order=True)
    assert stats(spark, root, "b", clock=clock).count() == 1
