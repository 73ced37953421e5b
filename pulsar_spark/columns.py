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


def full_ack_set(batch_size: Column) -> Column:
    """The ack set of a batch nothing of which is acknowledged: batch_size bits, 64 a word, low bit first."""
    all_bits = F.lit(-1).cast("bigint")
    words = F.sequence(F.lit(1), F.floor((batch_size + 63) / 64).cast("int"))
    filled = F.transform(
        words,
        lambda word: F.when(batch_size >= word * 64, all_bits).otherwise(
            F.call_function("shiftrightunsigned", all_bits, word * 64 - batch_size)
        ),
    )
    return F.when(batch_size > 0, filled)


def intersect_ack_sets(kept: Column, given: Column) -> Column:
    """Bits unacknowledged in both, trailing zero words cut (BitSetRecyclable); the empty set has no words."""
    both = F.zip_with(
        kept, given, lambda left, right: F.coalesce(left, F.lit(0)).bitwiseAND(F.coalesce(right, F.lit(0)))
    )
    words = F.aggregate(
        F.transform(both, lambda word, index: F.when(word != 0, index + 1).otherwise(0)),
        F.lit(0),
        lambda most, at: F.greatest(most, at),
    )
    return F.slice(both, F.lit(1), words)
