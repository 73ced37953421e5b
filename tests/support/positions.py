"""Messages by their positions, read by Spark."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.storage.entries.slices import PositionRange, find_pieces, read_pieces
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic


def read_positions(
    spark: SparkSession, layout: Layout, topic: Topic, ranges: Sequence[PositionRange], **options
) -> DataFrame:
    """What ``read_pieces`` reads of *ranges*, each of which must be numbered."""
    index = LedgerIndex(layout)
    pieces = find_pieces(index, topic, ranges)
    return read_pieces(spark, topic, pieces, without=index.foreign_files(topic.topic_id), **options)
