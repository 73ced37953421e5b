"""Publish the rows of files or of a table to a topic, in one commit.

    python -m pulsar_spark.jobs.publish \\
        --root /data/pulsar --topic orders --source /data/orders --format parquet --key id

A column ``payload`` is published unchanged; without one the payload is the whole row as JSON. With --app-id and
--app-version a repeated run publishes nothing.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.frames import publish
from pulsar_spark.storage.session import spark_session


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the root: a folder or the URL of a store")
    parser.add_argument("--topic", required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--source", help="path of the files")
    source.add_argument("--table", help="name of a table in the catalog")
    parser.add_argument("--format", default="parquet", help="format of the files: parquet, delta, json, csv, orc...")
    parser.add_argument("--key", help="column that becomes the messages' key")
    parser.add_argument("--event-time", help="column that becomes the messages' event time")
    parser.add_argument("--app-id", help="name of the job; needs --app-version")
    parser.add_argument(
        "--app-version",
        type=int,
        help="number of the run, such as 20260131; a run whose number is not above the last one publishes nothing",
    )
    parser.add_argument("--chunking", action="store_true", help="split payloads above the maximum message size")
    parser.add_argument("--compression", help="compress payloads with LZ4, ZLIB, ZSTD or SNAPPY")
    add_logging_arguments(parser)
    return parser.parse_args(arguments)


def read_source(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    if arguments.table:
        return spark.table(arguments.table)
    reader = spark.read.format(arguments.format)
    return (reader.option("header", "true") if arguments.format == "csv" else reader).load(arguments.source)


def as_messages(rows: DataFrame, key: str | None, event_time: str | None) -> DataFrame:
    """The rows as messages: ``payload``, and ``partition_key`` and ``event_time`` if they are named."""
    columns = [
        F.col("payload")
        if "payload" in rows.columns
        else F.to_json(F.struct(*rows.columns)).cast("binary").alias("payload")
    ]
    if key:
        columns.append(F.col(key).cast("string").alias("partition_key"))
    if event_time:
        columns.append(F.col(event_time).cast("timestamp").alias("event_time"))
    return rows.select(*columns)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    set_up_job_logging(given)
    spark = spark_session("pulsar_spark publish", root=given.root)
    messages = as_messages(read_source(spark, given), given.key, given.event_time)
    done = publish(
        messages,
        given.root,
        given.topic,
        chunking=given.chunking,
        compression=given.compression,
        app_id=given.app_id,
        app_version=given.app_version,
    )
    print(f"{done.messages} messages published to {given.topic}", flush=True)


if __name__ == "__main__":
    with errors_as_one_line():
        main()
