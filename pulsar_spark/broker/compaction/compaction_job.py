"""Compaction by a Spark job, for large topics and chunked messages. Files are written beside the view and moved into
it; one commit names them."""

import uuid
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from pulsar_spark.broker.compaction.compaction_plan import Compaction, Written
from pulsar_spark.broker.upkeep.side_jobs import SideJobs
from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.compaction.compacted import is_in_order
from pulsar_spark.storage.delta.data_files import place_files, spark_writer_options
from pulsar_spark.storage.delta.staging import staged
from pulsar_spark.storage.entries.slices import PositionRange, message_pieces, read_pieces
from pulsar_spark.storage.session import check_context, check_delta
from pulsar_spark.table_specs import COMPACTED, MESSAGES
from pulsar_spark.transforms.chunks import whole_messages
from pulsar_spark.transforms.compaction import FILE, in_files, in_one_piece, places_that_stay, rows_at

FILE_BYTES = 256 * 1024 * 1024
"""Approximate bytes of a file of the view."""
TASK_BYTES = 32 * 1024 * 1024
"""Approximate stored bytes for a task."""


class SparkCompaction:
    """Writes the rows of compacted views; another thread may cancel it with an error."""

    def __init__(self, spark: SparkSession):
        check_context(spark, "compaction of a large topic")
        check_delta(spark)
        self._jobs = SideJobs(spark, "compaction", {"spark.sql.adaptive.enabled": "true"})
        self.cancel = self._jobs.cancel

    def __call__(self, compaction: Compaction) -> Written:
        with self._jobs.described(f"compaction of {compaction.topic.name}") as spark:
            tasks = max(spark.sparkContext.defaultParallelism, -(-compaction.size // TASK_BYTES))
            spark.conf.set("spark.sql.shuffle.partitions", tasks)
            return self._written(spark, compaction)

    def _written(self, spark: SparkSession, compaction: Compaction) -> Written:
        rows = _published(spark, compaction)
        if compaction.view.messages(compaction.firsts):
            view = (
                spark.read.format("delta")
                .option("versionAsOf", compaction.view.version)
                .load(str(compaction.view.path))
            )
            rows = rows.union(view.filter(F.col("partition").isin(*compaction.firsts)).select(*COMPACTED.schema.names))
        places = places_that_stay(rows, retain_null_key=compaction.retain_null_key).persist()
        try:
            counts = {row.partition: row["count"] for row in places.groupBy("partition").count().collect()}
            by = ("partition", FILE) if compaction.topic.partitions else (FILE,)
            ordered = in_files(rows_at(rows, places), by, _bounds(places, _file_counts(compaction, counts)))
            with staged(ordered, compaction.view.path, by, spark_writer_options()) as files:
                if not all(is_in_order(file.source) for file in files):  # Spark's settings may change its plans
                    raise CorruptState(
                        f"topic {str(compaction.topic.name)!r}: Spark wrote rows out of order: compact again"
                    )
                named = [file._replace(name=_name_in_view(file.place)) for file in files]
                adds = place_files(compaction.view.path, named)
        finally:
            places.unpersist()
        return Written(adds, sum(counts.values()))


def _published(spark: SparkSession, compaction: Compaction) -> DataFrame:
    """The messages after the horizons, one row each, in the view's columns."""
    ranges = [
        PositionRange(partition, first, compaction.ledgers[partition].end_position - 1)
        for partition, first in compaction.firsts.items()
    ]
    found = message_pieces(compaction.ledgers, ranges)
    messages = read_pieces(spark, compaction.topic, found.pieces, MESSAGES.schema.names, version=compaction.until)
    if found.has_chunks:  # chunks before the horizon are included, for messages complete after it
        first = F.lit(None)
        for partition, position in compaction.firsts.items():
            first = F.when(F.col("partition") == partition, position).otherwise(first)
        messages = in_one_piece(whole_messages(messages)).filter(F.col("position") >= first)
    types = {field.name: from_arrow_type(field.type) for field in COMPACTED.schema}
    return messages.select(*(F.col(name).cast(types[name]).alias(name) for name in COMPACTED.schema.names))


def _file_counts(compaction: Compaction, counts: Mapping[int, int]) -> dict[int, int]:
    """Files for each partition's survivors, at average message size."""
    of_a_file = max(1, compaction.messages * FILE_BYTES)
    return {partition: max(1, -(-count * compaction.size // of_a_file)) for partition, count in counts.items()}


def _bounds(places: DataFrame, files: Mapping[int, int]) -> dict[int, list[int]]:
    """First positions of a partition's files, except the first file."""
    several = {partition: number for partition, number in files.items() if number > 1}
    if not several:
        return {}
    most = max(several.values())
    shares = [number / most for number in range(1, most)]
    chosen = places.filter(F.col("partition").isin(*several)).groupBy("partition")
    found = chosen.agg(F.percentile_approx("position", shares).alias("firsts")).collect()
    return {
        row.partition: sorted(
            {row.firsts[number * most // several[row.partition] - 1] for number in range(1, several[row.partition])}
        )
        for row in found
    }


def _name_in_view(name: str) -> str:
    """A unique path in the view for a staged file, since a task gives its files one name."""
    folders = [part for part in name.split("/")[:-1] if not part.startswith(f"{FILE}=")]
    return "/".join([*folders, f"part-{uuid.uuid4()}.snappy.parquet"])
