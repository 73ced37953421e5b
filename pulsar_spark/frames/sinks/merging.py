"""Merge a delivery's rows into a Delta table by key, in one transaction of a sink."""

from collections.abc import Sequence
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.storage.session import check_context, quoted, side_session

_TRANSACTION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
"""Settings of a session that make a MERGE a transaction; options of a writer do so only for appends."""
_ORDER = ("position", "partition", "batch_index")


def checked_keys(merge_on: str | Sequence[str]) -> tuple[str, ...]:
    """The columns of *merge_on*, one or several."""
    keys = (merge_on,) if isinstance(merge_on, str) else tuple(merge_on)
    if not keys or not all(isinstance(key, str) and key for key in keys):
        raise InvalidConfiguration(f"merge_on {merge_on!r}: give the name of one column or more")
    return keys


def last_of_each(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of the *rows* with the same *keys*, nulls included, the last by position."""
    if missing := [name for name in (*keys, "position") if name not in rows.columns]:
        raise InvalidMessage(
            f"the rows to merge on {list(keys)} lack {missing}, they have {rows.columns}: keep the keys, and the "
            "position, which tells the last row of a key"
        )
    order = [F.col(name).desc() for name in _ORDER if name in rows.columns]
    latest = Window.partitionBy(*(F.col(quoted(key)) for key in keys)).orderBy(*order)
    return rows.withColumn("_place", F.row_number().over(latest)).filter("_place = 1").drop("_place")


def merge(rows: DataFrame, path: Path, keys: Sequence[str], app_id: str, version: int) -> int:
    """Update the rows of the table at *path* that have the *keys* of *rows*, and insert the others, unless the
    transaction (*app_id*, *version*) or a later one of *app_id* is committed. Return the number of rows written.

    Columns that the table lacks are left out. :class:`InvalidConfiguration` through Spark Connect."""
    check_context(rows.sparkSession, "merge_on")
    session = side_session(rows.sparkSession, dict(zip(_TRANSACTION, (app_id, str(version)), strict=True)))
    same = " AND ".join(f"stored.{quoted(key)} <=> new.{quoted(key)}" for key in keys)
    table = DeltaTable.forPath(session, str(path)).alias("stored")
    merging = table.merge(rows.alias("new"), same).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    done = merging.execute().first()
    return 0 if done is None else done["num_affected_rows"]
