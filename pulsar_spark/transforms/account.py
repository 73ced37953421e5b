"""What became of consumers and cursors (design 4, step 7): permits left, messages given, who is blocked.

Permits are taken for messages, not entries (2.16). Whoever was blocked before the deal still is, since a consumer so
blocked was given nothing; else it is blocked once what it holds reaches the limit (4.4, 4.5, see turns).
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.transforms.round_inputs import RESULT


def take_account(dealt: DataFrame) -> DataFrame:
    """The plan's result: rows of :data:`~pulsar_spark.transforms.round_inputs.RESULT`."""
    is_consumer = F.col("fact.consumer_id").isNotNull()
    at_consumer, whole_cursor = Window.partitionBy("cursor", "holder"), Window.partitionBy("cursor")
    held = dealt.select("*", F.coalesce("fact.consumer_id", "consumer_id").alias("holder"))
    summed = held.select(
        "*",
        *(
            F.when(is_consumer, F.sum(given).over(at_consumer)).otherwise(F.sum(given).over(whole_cursor)).alias(name)
            for given, name in (("given", "delivered"), ("given_again", "redelivered"))
        ),
    )
    is_full = (F.col("fact.limit") > 0) & (F.col("fact.out") + F.col("delivered") >= F.col("fact.limit"))
    is_fact = F.col("fact").isNotNull()
    return summed.select(
        *(
            F.when(is_fact, F.col(name)).alias(name) if name in ("delivered", "redelivered") else F.col(name)
            for name in summed.columns
            if name not in ("consumer_id", "fact")
        ),
        F.when(is_consumer, F.lit("consumer")).when(is_fact, F.lit("cursor")).otherwise(F.lit("range")).alias("kind"),
        F.col("holder").alias("consumer_id"),
        (F.col("fact.permits") - F.col("delivered")).alias("permits"),
        (F.col("fact.is_blocked") | is_full).alias("is_blocked"),
    ).select(*RESULT.names)
