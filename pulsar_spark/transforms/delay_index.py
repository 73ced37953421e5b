"""The delay index of publishes too large for the driver (semantics 5.1)."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.delays.delays import LAST_TIME
from pulsar_spark.protocol.keys.sticky_key import MAX_HASH, NO_KEY_HASH
from pulsar_spark.table_specs import HASH
from pulsar_spark.transforms.sticky_keys import with_hash

ORDER = ("partition", "due_time", "position")


def delayed_entries(messages: DataFrame, delayed_after: DataFrame) -> DataFrame:
    """The delayed entries of *messages*: ``partition``, ``due_time``, ``position``, ``sticky_key_hash`` (null without a
    key).

    An entry is delayed if its first message's deliver time, in whole milliseconds (protocol.delays.whole_ms), is after
    ``delayed_after`` (microseconds) of its ``partition`` and ``ledger_id`` in *delayed_after*; other ledgers are left
    out. *messages* have ``partition``, ``ledger_id``, ``position``, ``batch_index``, ``deliver_at_time`` and, if they
    may have keys, the columns of ``transforms.sticky_keys``."""
    is_first = F.coalesce("batch_index", F.lit(0)) == 0
    delayed = (
        messages.filter(is_first & F.col("deliver_at_time").isNotNull())
        .join(F.broadcast(delayed_after), on=["partition", "ledger_id"], how="inner")
        .withColumn("due_micros", _whole_ms(F.col("deliver_at_time")))
        .filter(F.col("due_micros") > F.col("delayed_after"))
    )
    is_keyed = HASH in messages.columns
    hashed = with_hash(delayed) if is_keyed else delayed.withColumn(HASH, F.lit(None).cast("int"))
    hash_of_key = F.when(F.col(HASH) != NO_KEY_HASH, F.col(HASH).bitwiseAND(F.lit(MAX_HASH)))
    return hashed.select(
        "partition", F.timestamp_micros("due_micros").alias("due_time"), "position", hash_of_key.alias(HASH)
    )


def _whole_ms(time: Column) -> Column:
    micros = F.least(F.unix_micros(time), F.lit(LAST_TIME))
    return micros + F.pmod(1000 - F.pmod(micros, F.lit(1000)), F.lit(1000))


def in_files(entries: DataFrame, topic_id: str, files: int) -> DataFrame:
    """*entries* sorted within and across *files* tasks; ``in_partition`` gives each topic partition files of its
    own."""
    ordered = entries.repartitionByRange(files, *ORDER).sortWithinPartitions(*ORDER)
    return ordered.select(
        F.lit(topic_id).alias("topic_id"),
        "partition",
        "due_time",
        "position",
        HASH,
        F.col("partition").alias("in_partition"),
    )
