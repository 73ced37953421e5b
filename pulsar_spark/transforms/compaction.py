"""Compaction as frames: which messages stay, by the rules of ``protocol.policies.compaction``, and their rows.

The first pass groups places by key without payloads, the second reads the rows that stay. Both can spill."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.policies.compaction import TAG_BYTES
from pulsar_spark.table_specs import CHUNK_COLUMNS
from pulsar_spark.transforms.chunks import MOST_BYTES, TOO_LARGE, WRONG, is_chunk

PLACE = ("partition", "position", "index")
FILE = "in_file"


def _index() -> Column:
    return F.coalesce("batch_index", F.lit(0))


def _payload_size() -> Column:
    stored = F.coalesce(F.octet_length("payload"), F.lit(0))
    plain = F.when(F.col("encryption_keys").isNotNull(), stored - TAG_BYTES).otherwise(stored)
    return F.coalesce(F.col("uncompressed_size"), plain.cast("bigint"))


def in_one_piece(messages: DataFrame) -> DataFrame:
    """Rows of :func:`whole_messages` without chunk columns. Messages of a wrong size are left out; one too large for a
    row fails the job."""
    fits = F.col("total_chunk_msg_size") <= MOST_BYTES
    too_large = F.raise_error(F.format_string(TOO_LARGE, "total_chunk_msg_size"))
    is_message = F.col(WRONG).isNull() | F.when(is_chunk() & ~fits, too_large.cast("boolean"))
    whole = messages.filter(F.coalesce(is_message, F.lit(False))).drop(WRONG)
    types = dict(whole.dtypes)
    nothing = {name: F.lit(None).cast(types[name]) for name in CHUNK_COLUMNS}
    kept = {name: F.when(~is_chunk(), F.col(name)).otherwise(nothing[name]) for name in CHUNK_COLUMNS}
    return whole.select(*(kept[name].alias(name) if name in kept else F.col(name) for name in whole.columns))


def places_that_stay(messages: DataFrame, *, retain_null_key: bool) -> DataFrame:
    """:data:`PLACE` of the *messages* that compaction keeps, one row each. ``index`` is the batch index, 0 outside a
    batch. *messages* are rows of the messages table with ``position``."""
    latest = F.max(F.struct("position", _index().alias("index"), (_payload_size() <= 0).alias("is_empty")))
    by_key = messages.filter("partition_key IS NOT NULL").groupBy("partition", "partition_key")
    stay = by_key.agg(latest.alias("latest")).filter("NOT latest.is_empty").select("partition", "latest.*")
    if retain_null_key:
        keyless = messages.filter("partition_key IS NULL").withColumn("index", _index())
        stay = stay.select(*PLACE).union(keyless.select(*PLACE))
    return stay.select(*PLACE)


def rows_at(messages: DataFrame, places: DataFrame) -> DataFrame:
    is_there = [messages[name] == places[name] for name in PLACE if name != "index"]
    is_there.append(F.coalesce(messages["batch_index"], F.lit(0)) == places["index"])
    return messages.join(places, on=is_there, how="left_semi")


def in_files(rows: DataFrame, folders: Sequence[str], bounds: Mapping[int, Sequence[int]]) -> DataFrame:
    """*rows* sorted for writing to *folders*, with the file number :data:`FILE`; positions of files do not overlap.

    *bounds* are the first positions of a partition's second file, third and so on. Spark's writer would sort any other
    order again."""
    file = first_file = (F.col("position") < 0).cast(
        "int"
    )  # 0, but not a literal, for which Spark does not recognize the sort order
    for partition, firsts in bounds.items():
        number = sum(((F.col("position") >= first).cast("int") for first in firsts), first_file)
        file = F.when(F.col("partition") == partition, number).otherwise(file)
    numbered = rows.withColumn(FILE, file).repartition("partition", FILE)
    return numbered.sortWithinPartitions(*folders, "position", "batch_index")
