"""The demo's dead letters: flights without a tail number die, are repaired by a Spark job and sent back to the Shared
subscription ``billing``."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.frames import Reprocessed, reprocess_dead_letters

SUBSCRIPTION = "billing"
JOB_ID = "repair"


def unbillable(flights: pa.Table) -> np.ndarray:
    return flights.filter(pc.is_null(flights["tailnum"]))["id"].to_numpy()


def repair(letters: DataFrame) -> DataFrame:
    """Add a tail number to payload and key."""
    number = F.concat(F.lit("unknown of "), F.col("properties")["carrier"])
    payload = F.concat(
        F.lit('{"repaired":true,"tailnum":"'), number, F.lit('",'), F.substr(F.col("payload").cast("string"), F.lit(2))
    )
    return letters.withColumns({"payload": payload.cast("binary"), "partition_key": number})


def send_back(spark: SparkSession, root: str, topic: str) -> Reprocessed:
    return reprocess_dead_letters(spark, root, topic, subscription=SUBSCRIPTION, job_id=JOB_ID, fix=repair)
