"""The partition of a message as a column, by the rules of ``protocol.topics.routing``.

Messages without a key go round robin, from a different partition in each task. Java computes ``JavaStringHash``,
Spark's expressions ``Murmur3_32Hash`` (see transforms.key_hashes), a Python worker ``BoostHash``."""

from collections.abc import Sequence
from typing import cast

import pyarrow as pa
from py4j.java_gateway import JavaClass, JavaGateway
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from pulsar_spark.client.arguments import one_of
from pulsar_spark.columns import arrow_udf
from pulsar_spark.frames.publishing.message_columns import refusal
from pulsar_spark.protocol.keys.sticky_key import MAX_HASH
from pulsar_spark.protocol.topics.routing import HashingScheme, Scheme, key_hash
from pulsar_spark.storage.session import has_context
from pulsar_spark.transforms.key_hashes import hash_keys

_REFLECTED = "cast(reflect('java.util.Objects', 'hashCode', {}) as int)"
_ROUTING_HASH = "routing_hash"


def checked_scheme(scheme: Scheme) -> HashingScheme:
    """The scheme by name; :class:`InvalidConfiguration` for an unknown one."""
    return HashingScheme[one_of("hashing scheme", scheme, tuple(HashingScheme.__members__))]


def routed(messages: DataFrame, columns: set[str], partitions: Sequence[int], scheme: HashingScheme) -> DataFrame:
    """*messages*, which have the message *columns*, with their ``partition``, one of *partitions*.

    With Murmur3, messages with keys have ``sticky_key_hash``. A given partition outside of *partitions* fails the job;
    null counts as not given."""
    if len(partitions) == 1:
        partition = F.lit(partitions[0])
    else:
        row_in_task = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
        partition = (row_in_task + F.spark_partition_id()) % len(partitions)
        if "partition_key" in columns:
            messages, key_hash = _with_key_hash(messages, columns, scheme)
            of_key = key_hash % len(partitions)
            partition = F.when(F.col("partition_key").isNull(), partition).otherwise(of_key)
    return messages.withColumn("partition", _given_or(partition, columns, partitions)).drop(_ROUTING_HASH)


def _given_or(routed: Column, columns: set[str], partitions: Sequence[int]) -> Column:
    if "partition" in columns:
        given = F.col("partition")
        unknown = refusal(
            "InvalidMessage",
            f"partition %s does not exist: this publish writes to {partitions[0]} to {partitions[-1]}; correct the "
            "column or leave it out",
            given,
        )
        routed = (
            F.when(given.isNull(), routed)
            .when(given.between(partitions[0], partitions[-1]), given)
            .otherwise(unknown.cast("int"))
        )
    return routed.cast("int")


def _with_key_hash(messages: DataFrame, columns: set[str], scheme: HashingScheme) -> tuple[DataFrame, Column]:
    key = F.col("partition_key")
    if scheme is HashingScheme.JavaStringHash:
        return messages, _java_hash(messages, "partition_key").bitwiseAND(F.lit(MAX_HASH))
    if scheme is HashingScheme.BoostHash:
        return messages, _boost_hash(key)
    if columns & {"ordering_key", "partition_key_b64_encoded"}:
        return hash_keys(messages, key.cast("binary"), _ROUTING_HASH), F.col(_ROUTING_HASH)
    return messages, F.col("sticky_key_hash")


def _java_hash(messages: DataFrame, text: str) -> Column:
    """``hashCode()`` of the column *text*, in generated code; with Spark Connect by the slower ``reflect``."""
    if not has_context(messages.sparkSession):
        return F.expr(_REFLECTED.format(text))

    gateway = cast(JavaGateway, messages.sparkSession.sparkContext._gateway)

    def named(name: str) -> JavaClass:
        """The class by its whole name; resolving a dotted name would query the JVM for each part."""
        return JavaClass(name, gateway._gateway_client)

    sql = "org.apache.spark.sql"
    expressions, call = named(f"{sql}.classic.ExpressionUtils"), named(f"{sql}.catalyst.expressions.objects.Invoke")
    none = named("org.apache.spark.api.python.PythonUtils").toSeq([])
    of_string = named(f"{sql}.types.ObjectType")(named("java.lang.Class").forName("java.lang.String"))
    of_int = named(f"{sql}.types.DataTypes").IntegerType
    as_string = call(expressions.expression(F.col(text)._jc), "toString", of_string, none, none, True, True, True)
    hashed = call(as_string, "hashCode", of_int, none, none, True, True, True)
    return ClassicColumn(expressions.column(hashed))


def _boost_hash(key: Column) -> Column:
    def hashes(keys: pa.Array) -> pa.Array:
        encoded = keys.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        return pa.array([key_hash(each, HashingScheme.BoostHash) for each in distinct], pa.int32()).take(
            encoded.indices
        )

    return arrow_udf(hashes, "int")(key)
