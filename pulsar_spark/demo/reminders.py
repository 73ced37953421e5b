"""The demo's boarding reminders, delayed to each departure on a clock that runs a year in seconds.

The Shared subscription ``boarding`` must get each once and none early.
"""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_spark.frames import publish

SUBSCRIPTION = "boarding"
YEAR_SECONDS = 30
LEAD_SECONDS = 10
"""Seconds before the first departure, for the publish."""


def departures(flights: pa.Table) -> np.ndarray:
    """The scheduled departure of each flight by ``id``, in seconds: 0 to :data:`YEAR_SECONDS`."""
    rows = flights.select(["time_hour", "minute"]).to_pandas()
    minutes = pd.to_timedelta(rows["minute"].astype("int64"), unit="min")
    instants = (pd.to_datetime(rows["time_hour"], utc=True) + minutes).astype("int64").to_numpy()
    return (instants - instants.min()) / max(int(np.ptp(instants)), 1) * YEAR_SECONDS


def send(spark: SparkSession, root: str, topic: str, flights: pa.Table, work: Path) -> np.ndarray:
    """Publish a reminder for each flight; return due times in nanoseconds by the clock of the notes."""
    deliver_at = int((time.time() + LEAD_SECONDS) * 1000) + (departures(flights) * 1000).astype("int64")
    path = work / "reminders.parquet"
    pq.write_table(pa.table({"id": flights["id"], "deliver_at": deliver_at}), path)
    rows = spark.read.parquet(str(path))
    publish(rows.select(F.to_json(F.struct("id")).alias("payload"), "deliver_at"), root, topic)
    return deliver_at * 1_000_000 - (time.time_ns() - time.monotonic_ns())
