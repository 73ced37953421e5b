"""Compaction as frames: which messages stay, as ``protocol.compaction`` says, and their rows.

Two passes, as in Pulsar's compactor and for its reason: the first groups places by key and carries no payload, the
second reads the rows that stay. Neither keeps all keys in one place: a ``groupBy`` spills, and the rows are joined by
place and not by a set on the driver.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.compaction import TAG_BYTES
from pulsar_spark.table_specs import CHUNK_COLUMNS
from pulsar_spark.transforms.chunks import MOST_BYTES, TOO_LARGE, WRONG, is_chunk

PLACE = ("partition", "position", "index")
FILE = "in_file"


def _index() -> Column:
    return F.coalesce("batch_index", F.lit(0))


def _payload_size() -> Column:
    """``protocol.compaction.payload_size``."""
    stored = F.coalesce(F.octet_length("payload"), F.lit(0))
    plain = F.when(F.col("encryption_keys").isNotNull(), stored - TAG_BYTES).otherwise(stored)
    return F.coalesce(F.col("uncompressed_size"), plain.cast("bigint"))


def in_one_piece(messages: DataFrame) -> DataFrame:
    """Rows as :func:`whole_messages` gives them, as if nobody had split any; those whose chunks are not the message
    that they say, which nobody can read, are left out. A message that no row holds fails the job."""
    is_held = F.col("total_chunk_msg_size") <= MOST_BYTES
    too_large = F.raise_error(F.format_string(TOO_LARGE, "total_chunk_msg_size"))
    is_message = F.col(WRONG).isNull() | F.when(is_chunk() & ~is_held, too_large.cast("boolean"))
    whole = messages.filter(F.coalesce(is_message, F.lit(False))).drop(WRONG)
    types = dict(whole.dtypes)
    nothing = {name: F.lit(None).cast(types[name]) for name in CHUNK_COLUMNS}
    kept = {name: F.when(~is_chunk(), F.col(name)).otherwise(nothing[name]) for name in CHUNK_COLUMNS}
    return whole.select(*(kept[name].alias(name) if name in kept else F.col(name) for name in whole.columns))


def places_that_stay(messages: DataFrame, *, retain_null_key: bool) -> DataFrame:
    """:data:`PLACE` of those of *messages*, rows of the messages table with their ``position``, that compaction keeps,
    one row each. ``index`` is the batch index, 0 outside a batch."""
    latest = F.max(F.struct("position", _index().alias("index"), (_payload_size() <= 0).alias("is_empty")))
    by_key = messages.filter("partition_key IS NOT NULL").groupBy("partition", "partition_key")
    stay = by_key.agg(latest.alias("latest")).filter("NOT latest.is_empty").select("partition", "latest.*")
    if retain_null_key:
        keyless = messages.filter("partition_key IS NULL").withColumn("index", _index())
        stay = stay.select(*PLACE).union(keyless.select(*PLACE))
    return stay.select(*PLACE)


def rows_at(messages: DataFrame, places: DataFrame) -> DataFrame:
    """Those of *messages* that lie at *places*, of which none is there twice."""
    is_there = [messages[name] == places[name] for name in PLACE if name != "index"]
    is_there.append(F.coalesce(messages["batch_index"], F.lit(0)) == places["index"])
    return messages.join(places, on=is_there, how="left_semi")


def in_files(rows: DataFrame, folders: Sequence[str], bounds: Mapping[int, Sequence[int]]) -> DataFrame:
    """*rows* as they are to be written to *folders*, whose last is the column :data:`FILE`, a number by which they make
    files whose positions do not overlap: in order of folder and place, since what is in another order Spark's writer
    sorts again. *bounds* are the first positions of the second file of a partition, the third
    and so on."""
    file = first_file = (F.col("position") < 0).cast(
        "int"
    )  # 0, but no literal, by which Spark takes nothing for sorted
    for partition, firsts in bounds.items():
        number = sum(((F.col("position") >= first).cast("int") for first in firsts), first_file)
        file = F.when(F.col("partition") == partition, number).otherwise(file)
    numbered = rows.withColumn(FILE, file).repartition("partition", FILE)
    return numbered.sortWithinPartitions(*folders, "position", "batch_index")
