"""The interval algebra against drawings: ranges in, segments out."""

from chispa import assert_df_equality
from pyspark.sql import functions as F

from pulsar_spark.transforms.intervals import to_segments

SEGMENTS = "cursor int, first long, last long, a long, b long, name string"


def test_ranges_are_cut_wherever_one_begins_or_ends(spark):
    """
    position  0  1  2  3  4  5  6  7  8
    a         x  x  x  x     x
    b               y  y  y  y
    """
    ranges = spark.createDataFrame(
        [(1, "a", 0, 3, "x"), (1, "a", 5, 5, "x2"), (1, "b", 2, 5, None), (2, "b", 7, 7, None)],
        "cursor int, kind string, first long, last long, name string",
    )
    segments = to_segments(
        ranges,
        keys=("cursor",),
        opens={"a": F.col("kind") == "a", "b": F.col("kind") == "b"},
        carries={"name": F.col("name")},
    )
    expected = spark.createDataFrame(
        [
            (1, 0, 1, 1, 0, "x"),
            (1, 2, 3, 1, 1, "x"),
            (1, 4, 4, 0, 1, "x"),
            (1, 5, 5, 1, 1, "x2"),
            (1, 6, None, 0, 0, "x2"),
            (2, 7, 7, 0, 1, None),
            (2, 8, None, 0, 0, None),
        ],
        SEGMENTS,
    )
    assert_df_equality(segments, expected, ignore_row_order=True, ignore_nullable=True, ignore_column_order=True)


def test_ranges_that_overlap_are_counted(spark):
    ranges = spark.createDataFrame(
        [(1, "a", 0, 5, "p"), (1, "a", 3, 8, "q")], "cursor int, kind string, first long, last long, name string"
    )
    segments = to_segments(
        ranges,
        keys=("cursor",),
        opens={"a": F.col("kind") == "a", "b": F.col("kind") == "b"},
        carries={"name": F.col("name")},
    )
    expected = spark.createDataFrame(
        [(1, 0, 2, 1, 0, "p"), (1, 3, 5, 2, 0, "q"), (1, 6, 8, 1, 0, "q"), (1, 9, None, 0, 0, "q")], SEGMENTS
    )
    assert_df_equality(segments, expected, ignore_row_order=True, ignore_nullable=True, ignore_column_order=True)


def test_a_point_says_something_for_itself_alone(spark):
    """
    position  0  1  2  3
    a         x  x        axis 1
    points    p     q     axis 2
    """
    rows = spark.createDataFrame(
        [(1, "a", 0, 1, "x"), (2, "point", 0, 0, "p"), (2, "point", 2, 2, "q")],
        "cursor int, kind string, first long, last long, name string",
    )
    segments = to_segments(
        rows,
        keys=("cursor",),
        opens={"a": F.col("kind") == "a"},
        carries={"name": F.when(F.col("kind") == "a", F.col("name"))},
        points={"point": F.when(F.col("kind") == "point", F.col("name"))},
    )
    expected = spark.createDataFrame(
        [(1, None, "x", 0, 1, 1), (1, None, "x", 2, None, 0), (2, "p", None, 0, 1, 0), (2, "q", None, 2, None, 0)],
        "cursor int, point string, name string, first long, last long, a long",
    )
    assert_df_equality(segments, expected, ignore_row_order=True, ignore_nullable=True, ignore_column_order=True)
