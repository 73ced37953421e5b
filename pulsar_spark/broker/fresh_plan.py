"""The second kind of plan, beside the prepared one (see planner): built for one execution, over slices of topics.

A prepared plan costs no planning and so cannot read a topic: its leaf is one file of rows that the driver has. Where a
rule needs columns of very many entries, it says so as a transform of two frames: the rows the driver has, as a local
relation, and the entries, read by Spark with literal bounds, so that files and row groups outside them are skipped (see
storage.slices). Analysis, optimisation and planning are paid for at each call: 1.6 s for a slice of 10^5 entries on two
busy cores. So what a round needs of up to some millions of entries it reads itself (see unread_slices); this is for
rules that join and shuffle more than the driver should hold.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.slices import PositionRange, pieces_of, read_pieces
from pulsar_spark.storage.topics import Topic


class Slice(NamedTuple):
    """Entries of one topic partition that a rule needs to know, for cursor number *cursor* of the work."""

    cursor: int
    topic: Topic
    partition: int
    runs: Sequence[Run]


def run_fresh(
    spark: SparkSession,
    rule: Callable[[DataFrame, DataFrame], DataFrame],
    slices: Sequence[Slice],
    columns: Sequence[str],
    work: pa.Table,
) -> pa.Table:
    """What *rule* gives for the entries of *slices* (``cursor``, ``position``, ``batch_index`` and *columns*, a row a
    message) and the rows of *work*."""
    entries = reduce(DataFrame.unionByName, (_entries(spark, each, columns) for each in slices))
    return rule(entries, spark.createDataFrame(work)).toArrow()


def _entries(spark: SparkSession, wanted: Slice, columns: Sequence[str]) -> DataFrame:
    first, last = wanted.runs[0].first_position, wanted.runs[-1].last_position
    pieces = pieces_of(PositionRange(wanted.partition, first, last), wanted.runs)
    names = ["batch_index", *columns]
    return read_pieces(spark, wanted.topic, pieces, names).select(
        F.lit(wanted.cursor).alias("cursor"), "position", *names
    )
