"""spark-submit job: run a broker on a root until it is told to stop (SIGTERM).

    spark-submit --properties-file conf/spark-defaults.conf jobs/broker.py --root /data/pulsar

Under spark-submit the signal reaches the JVM first, which ends at once with exit code 143: a round under way is then
committed or not begun, and the next broker goes on from there. ``pulsar-spark broker`` finishes its round and ends with
0. With ``--available-now`` it ends by itself when nothing is left to do and nobody is connected, as a scheduled run
wants.
"""

import argparse
import logging

from pulsar_spark.broker.process import run_broker
from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.protocol.delays import MAX_NUM_BUCKETS

log = logging.getLogger("pulsar_spark.jobs.broker")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", required=True, help="folder of the tables")
    parser.add_argument(
        "--max-unacked-messages-per-broker",
        type=int,
        default=0,
        help=(
            "at so many unacknowledged messages on Shared subscriptions those that hold most of them get nothing "
            "new; 0 = no limit"
        ),
    )
    parser.add_argument(
        "--delayed-delivery-max-num-buckets",
        type=int,
        default=MAX_NUM_BUCKETS,
        help="so many buckets of the delay index at most: where there are more, some become one",
    )
    parser.add_argument(
        "--housekeeping",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep the root's tables small and their logs short while it serves, in the background, or do not",
    )
    parser.add_argument(
        "--available-now", action="store_true", help="end when nothing is left to do and nobody is connected"
    )
    add_logging_arguments(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    set_up_job_logging(given)
    run_broker(
        given.root,
        max_unacked_messages_per_broker=given.max_unacked_messages_per_broker,
        available_now=given.available_now,
        delayed_delivery_max_num_buckets=given.delayed_delivery_max_num_buckets,
        housekeeping=given.housekeeping,
    )
    log.info("broker of root %s stopped", given.root)


if __name__ == "__main__":
    with errors_as_one_line():
        main()
