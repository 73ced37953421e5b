"""What became of consumers and cursors (design 4): remaining permits, messages given, who is blocked.

Permits count messages, not entries (2.16). A consumer becomes blocked when its unacknowledged messages reach the limit
(4.4, 4.5)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.transforms.round_inputs import RESULT


def count_given(dealt: DataFrame) -> DataFrame:
    """Add to each fact the messages that its consumer or cursor received in this round (``delivered``), and how many of
    them were met before (``redelivered``)."""
    by_holder = Window.partitionBy("cursor").orderBy("holder")
    at_consumer = by_holder.rangeBetween(Window.currentRow, Window.currentRow)
    whole_cursor = by_holder.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return dealt.select("*", _holder().alias("holder")).select(
        "*",
        *(
            F.when(_is_consumer(), F.sum(given).over(at_consumer))
            .otherwise(F.sum(given).over(whole_cursor))
            .alias(name)
            for given, name in (("given", "delivered"), ("given_again", "redelivered"))
        ),
    )


def take_account(counted: DataFrame) -> DataFrame:
    """The plan's result: rows of :data:`~pulsar_spark.transforms.round_inputs.RESULT`."""
    is_full = (F.col("fact.limit") > 0) & (F.col("fact.out") + F.col("delivered") >= F.col("fact.limit"))
    is_fact = F.col("fact").isNotNull()
    columns = {
        "kind": F.when(_is_consumer(), F.lit("consumer")).when(is_fact, F.lit("cursor")).otherwise(F.lit("range")),
        "consumer_id": _holder(),
        "permits": F.col("fact.permits") - F.col("delivered"),
        "is_blocked": F.col("fact.is_blocked") | is_full,
        "delivered": F.when(is_fact, F.col("delivered")),
        "redelivered": F.when(is_fact, F.col("redelivered")),
    }
    return counted.select(*(columns.get(name, F.col(name)).alias(name) for name in RESULT.names))


def _is_consumer() -> Column:
    return F.col("fact.consumer_id").isNotNull()


def _holder() -> Column:
    return F.coalesce("fact.consumer_id", "consumer_id")
