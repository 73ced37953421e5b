"""Write a subscription's messages to a Delta table, each exactly once. A broker must run on the root.

    spark-submit --properties-file conf/spark-defaults.conf jobs/consume.py \\
        --root /data/pulsar --topic orders --subscription lake --target /data/orders_raw

It runs until SIGTERM or Ctrl-C, then ends with exit code 0; with --available-now, if stopped before all is written,
with 143 or 130.
"""

import argparse
import sys

from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.cli.signals import exit_code, stopping_on_signals
from pulsar_spark.frames import consume, to_delta
from pulsar_spark.frames.consuming.membership import DEFAULT_INITIAL_POSITION, INITIAL_POSITIONS
from pulsar_spark.protocol.subscriptions.membership import SUBSCRIPTION_TYPES
from pulsar_spark.storage.session import spark_session


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the root: a folder or the URL of a store")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--subscription", required=True)
    parser.add_argument("--target", required=True, help="path of the Delta table to append to; created if missing")
    parser.add_argument("--subscription-type", choices=SUBSCRIPTION_TYPES, default="Exclusive")
    parser.add_argument(
        "--initial-position",
        choices=INITIAL_POSITIONS,
        default=DEFAULT_INITIAL_POSITION,
        help=f"where a new subscription starts; by default {DEFAULT_INITIAL_POSITION}",
    )
    parser.add_argument(
        "--available-now", action="store_true", help="end when everything published before the start is written"
    )
    parser.add_argument("--create", action="store_true", help="create a missing topic")
    add_logging_arguments(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    set_up_job_logging(given)
    spark = spark_session("pulsar_spark consume", root=given.root)
    target = to_delta(given.target, name=given.subscription)
    with consume(
        spark,
        given.root,
        given.topic,
        given.subscription,
        target,
        subscription_type=given.subscription_type,
        initial_position=given.initial_position,
        available_now=given.available_now,
        create=given.create,
    ) as consumption:
        with stopping_on_signals(lambda: consumption.stop(0)) as signals:
            consumption.await_termination()
    what = "stopped" if signals else "done"
    print(
        f"{what}: {consumption.totals['acknowledged']} messages of {given.topic} {given.subscription} acknowledged, "
        f"{target.rows_written} rows written to {given.target}",
        flush=True,
    )
    if signals and given.available_now:
        sys.exit(exit_code(signals[0]))


if __name__ == "__main__":
    with errors_as_one_line():
        main()
