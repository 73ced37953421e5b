"""Functions that return a Column: the vocabulary of the transforms."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

from pulsar_spark.protocol.keys.sticky_key import sticky_key
from pulsar_spark.protocol.keys.sticky_key import sticky_key_hash as hash_of


def arrow_udf(function: Callable[..., object], kind: DataType | str) -> "UserDefinedFunctionLike":
    """*function* as a function of columns whose result has the type *kind*.

    Its annotations say what it takes and returns: arrays, or iterators of arrays, one a batch.
    """
    return F.arrow_udf(function, kind)  # type: ignore[call-overload]  # Spark's stubs want a number beside annotations


def unacked_messages(ack_set: Column, batch_size: Column) -> Column:
    """The number of unacknowledged messages of an entry: the bits of its ack set, or without one the batch size.

    >>> sets = spark.sql("select array(5L, -1L) as s")  # doctest: +SKIP
    >>> sets.select(unacked_messages(F.col("s"), F.lit(100)).alias("n")).first().n  # doctest: +SKIP
    66
    """
    bits = F.aggregate(ack_set, F.lit(0), lambda total, word: total + F.bit_count(word))
    return F.when(ack_set.isNull(), batch_size).otherwise(bits).cast("bigint")


def sticky_key_hash(
    partition_key: Column, ordering_key: Column, is_base64: Column, is_ordering_key_base64: Column | None = None
) -> Column:
    """The 31-bit hash for Key_Shared (semantics 2.21, 0.1): of the ordering key, else of the partition key, else of
    ``NONE_KEY``.

    Keys are texts or bytes, decoded first where flagged as base64. Never null. Without base64, transforms.key_hashes
    needs no Python worker.

    >>> keys = spark.sql("select 'Order-3459134' as k, cast(null as string) as o, false as b")  # doctest: +SKIP
    >>> keys.select(sticky_key_hash(F.col("k"), F.col("o"), F.col("b")).alias("h")).first().h  # doctest: +SKIP
    964695987
    """
    keys = (partition_key.cast("binary"), ordering_key.cast("binary"))
    is_ordered = F.lit(False) if is_ordering_key_base64 is None else is_ordering_key_base64
    return _sticky_key_hash(*keys, is_base64.cast("boolean"), is_ordered.cast("boolean"))


def _hashes(
    partition_keys: pa.Array, ordering_keys: pa.Array, is_base64: pa.Array, is_ordering_key_base64: pa.Array
) -> pa.Array:
    columns = (partition_keys, ordering_keys, is_base64, is_ordering_key_base64)
    hashes = [
        hash_of(sticky_key(key, ordering_key=ordering, is_base64=is_coded, is_ordering_key_base64=is_ordering_coded))
        for key, ordering, is_coded, is_ordering_coded in zip(*(column.to_pylist() for column in columns), strict=True)
    ]
    return pa.array(hashes, pa.int32())


_sticky_key_hash = arrow_udf(_hashes, IntegerType())
