"""spark-submit job: write a subscription's messages to a Delta table, each exactly once. A broker must be running on the root.

    spark-submit --properties-file conf/spark-defaults.conf jobs/consume.py --root /data/pulsar --topic orders --subscription lake --target /data/orders_raw

It runs until it is told to stop (SIGTERM); with ``--available-now`` it ends when everything published before its start is written, as a scheduled run wants.
"""
import argparse
import signal

from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.client.frames import consume, to_delta
from pulsar_spark.client.frames.membership import INITIAL_POSITIONS
from pulsar_spark.protocol.membership import IMPLEMENTED_TYPES
from pulsar_spark.storage.session import spark_session


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", required=True, help="folder of the tables")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--subscription", required=True)
    parser.add_argument("--target", required=True, help="path of the Delta table to append to; created if missing")
    parser.add_argument("--subscription-type", choices=IMPLEMENTED_TYPES, default="Exclusive")
    parser.add_argument("--initial-position", choices=INITIAL_POSITIONS, default="Earliest", help="where a new subscription starts")
    parser.add_argument("--available-now", action="store_true", help="end when everything published before the start is written")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    spark = spark_session("pulsar_spark consume")
    with consume(spark, given.root, given.topic, given.subscription, to_delta(given.target, name=given.subscription),
                 subscription_type=given.subscription_type, initial_position=given.initial_position, available_now=given.available_now) as consumption:
        previous = signal.signal(signal.SIGTERM, lambda *_: consumption.stop())
        consumption.await_termination()
        signal.signal(signal.SIGTERM, previous)
    print(f"done: {given.topic} {given.subscription} is written to {given.target}", flush=True)


if __name__ == "__main__":
    with errors_as_one_line():
        main()
