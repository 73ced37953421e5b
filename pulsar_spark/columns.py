"""Functions that return a Column: the vocabulary of the transforms."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def unacked_messages(ack_set: Column, batch_size: Column) -> Column:
    """Messages of an entry still to be acknowledged: the bits of its ack set, all of the batch where it has none.

    >>> sets = spark.sql("select array(5L, -1L) as s")  # doctest: +SKIP
    >>> sets.select(unacked_messages(F.col("s"), F.lit(100)).alias("n")).first().n  # doctest: +SKIP
    66
    """
    bits = F.aggregate(ack_set, F.lit(0), lambda total, word: total + F.bit_count(word))
    return F.coalesce(bits, batch_size).cast("bigint")
