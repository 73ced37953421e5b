"""Run a broker on a root until SIGTERM or Ctrl-C.

    python -m pulsar_spark.jobs.broker --root /data/pulsar

Under spark-submit the JVM gets the signal first and ends at once with exit code 143; the next broker continues from the
last committed round. The command 'pulsar-spark broker' finishes its round and ends with 0.
"""

import argparse
import logging

from pulsar_spark.broker.service.process import run_broker
from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.metrics.process import metrics_of_this_process
from pulsar_spark.metrics.settings import DEFAULT_SUBSCRIPTIONS, LOOPBACK
from pulsar_spark.protocol.delays.delays import MAX_NUM_BUCKETS

log = logging.getLogger("pulsar_spark.jobs.broker")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the root: a folder or the URL of a store")
    parser.add_argument(
        "--max-unacked-messages-per-broker",
        type=int,
        default=0,
        help=(
            "limit of unacknowledged messages on all Shared and Key_Shared subscriptions together; at the limit, those "
            "subscriptions with the most unacknowledged messages get no new ones; 0 = no limit"
        ),
    )
    parser.add_argument(
        "--delayed-delivery-max-num-buckets",
        type=int,
        default=MAX_NUM_BUCKETS,
        help="largest number of files (buckets) in the delay index; if there are more, the broker merges some",
    )
    parser.add_argument(
        "--housekeeping",
        action=argparse.BooleanOptionalAction,
        default=True,
        help=(
            "keep the root's tables small and their logs short, in the background, while the broker serves, and sample "
            "activity once a minute"
        ),
    )
    parser.add_argument(
        "--available-now", action="store_true", help="end when all work is done and no client is connected"
    )
    parser.add_argument(
        "--metrics-port", type=int, help="serve /metrics for Prometheus, /healthz and /readyz at this port"
    )
    parser.add_argument("--metrics-host", default=LOOPBACK, help=f"the address for metrics: {LOOPBACK} unless given")
    parser.add_argument(
        "--metrics-subscriptions",
        type=int,
        default=DEFAULT_SUBSCRIPTIONS,
        help="how many subscriptions and topics, those with the worst backlog, have metrics of their own",
    )
    add_logging_arguments(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    set_up_job_logging(given)
    metrics = {"port": given.metrics_port, "host": given.metrics_host, "most": given.metrics_subscriptions}
    with metrics_of_this_process(given.root, **metrics):
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
