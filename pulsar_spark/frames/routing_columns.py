"""The partition of a message as a Column: the same rules as ``protocol.routing``, over a frame.

A key decides by its hash; messages without one go round robin, each task starting at another partition.
``JavaStringHash`` is computed by Java itself, at the price of a cast; the other schemes have no native expression
(Spark's own ``hash`` is a Murmur3 that mixes the bytes after the last whole word differently) and take a Python worker,
which hashes each key of a batch once.
"""

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf

from pulsar_spark.frames.membership import one_of
from pulsar_spark.frames.message_columns import refusal
from pulsar_spark.protocol.routing import HashingScheme, key_hash

_JAVA_HASH = "cast(reflect('java.util.Objects', 'hashCode', {}) as int)"


def checked_scheme(scheme: HashingScheme | str) -> HashingScheme:
    """The scheme by name; :class:`InvalidConfiguration` for another text."""
    return HashingScheme[one_of("hashing scheme", scheme, tuple(HashingScheme.__members__))]


def partition_column(columns: set[str], partitions: list[int], scheme: HashingScheme) -> Column:
    """The partition of a row with the named message *columns*. *partitions* are those the publish may write to, all of
    a topic or one.

    An explicit partition among others fails the job that writes; an explicit null is as none.
    """
    if len(partitions) == 1:
        routed = F.lit(partitions[0])
    else:
        turn = (_row_in_task() + F.spark_partition_id()) % len(partitions)
        routed = (
            turn
            if "partition_key" not in columns
            else F.when(F.col("partition_key").isNull(), turn).otherwise(
                _key_hash("partition_key", scheme) % len(partitions)
            )
        )
    if "partition" in columns:
        given = F.col("partition")
        unknown = refusal(
            "InvalidMessage",
            F.concat(
                F.lit("partition "),
                given.cast("string"),
                F.lit(
                    f" is none of this publish, which writes to {partitions[0]} to {partitions[-1]}: correct the "
                    "column or leave it out"
                ),
            ),
        )
        routed = (
            F.when(given.isNull(), routed)
            .when(given.between(partitions[0], partitions[-1]), given)
            .otherwise(unknown.cast("int"))
        )
    return routed.cast("int")


def _row_in_task() -> Column:
    return F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))


def _key_hash(key: str, scheme: HashingScheme) -> Column:
    if scheme is HashingScheme.JavaStringHash:
        return F.expr(_JAVA_HASH.format(key)).bitwiseAND(F.lit(0x7FFFFFFF))

    def hashes(keys: pa.Array) -> pa.Array:
        encoded = keys.dictionary_encode()
        of_key = pa.array([key_hash(value, scheme) for value in encoded.dictionary.to_pylist()], pa.int32())
        return of_key.take(encoded.indices)

    return arrow_udf(hashes, "int")(F.col(key))
