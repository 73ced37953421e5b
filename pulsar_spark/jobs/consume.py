"""Write a subscription's messages to a Delta table, each exactly once. A broker must run on the root.

    python -m pulsar_spark.jobs.consume \\
        --root /data/pulsar --topic orders --subscription lake --target /data/orders_raw

It runs until SIGTERM or Ctrl-C, then ends with exit code 0; with --available-now, if stopped before all is written,
with 143 or 130. During a long delivery it shows how far it is.

With --merge-on the table has one row for each value of these columns, the one of the last message. A transformation
that raises an error gives its whole delivery back and ends the job; with --dead-letter, messages that were given back
too often are left out as dead letters.
"""

import argparse
import sys

from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.delivery_progress import await_termination
from pulsar_spark.cli.letters.dead_letters import load_function
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.cli.signals import exit_code, stopping_on_signals
from pulsar_spark.client.model.policies import ConsumerDeadLetterPolicy
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames import consume, to_delta
from pulsar_spark.frames.consuming.membership import DEFAULT_INITIAL_POSITION, INITIAL_POSITIONS, MAX_MESSAGES
from pulsar_spark.protocol.subscriptions.membership import SUBSCRIPTION_TYPES
from pulsar_spark.storage.session import spark_session


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the root: a folder or the URL of a store")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--subscription", required=True)
    parser.add_argument(
        "--target",
        required=True,
        help=(
            "the Delta table to write to, created if missing: a path with a slash, or a name in a catalog, as "
            "schema.table or catalog.schema.table"
        ),
    )
    parser.add_argument(
        "--merge-on",
        action="append",
        metavar="COLUMN",
        help="update the row with the same value in this column, insert others, instead of appending; repeatable",
    )
    parser.add_argument(
        "--transform",
        metavar="MODULE:FUNCTION",
        help="function that gets a delivery's messages as a DataFrame and returns the rows to write",
    )
    parser.add_argument(
        "--dead-letter",
        type=int,
        metavar="COUNT",
        help="messages that were given back more often than this go to the dead letter topic",
    )
    parser.add_argument("--max-messages", type=int, default=MAX_MESSAGES, help="most messages of a delivery")
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


def dead_letter_policy(count: int | None) -> ConsumerDeadLetterPolicy | None:
    if count is not None and count < 1:
        raise InvalidConfiguration(f"--dead-letter {count}: give a number above 0")
    return None if count is None else ConsumerDeadLetterPolicy(count)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    set_up_job_logging(given)
    transform = load_function("--transform", given.transform)
    target = to_delta(given.target, name=given.subscription, transform=transform, merge_on=given.merge_on)
    policy = dead_letter_policy(given.dead_letter)
    spark = spark_session("pulsar_spark consume", root=given.root)
    with consume(
        spark,
        given.root,
        given.topic,
        given.subscription,
        target,
        subscription_type=given.subscription_type,
        initial_position=given.initial_position,
        max_messages=given.max_messages,
        dead_letter_policy=policy,
        available_now=given.available_now,
        create=given.create,
    ) as consumption:
        with stopping_on_signals(lambda: consumption.stop(0)) as signals:
            await_termination(consumption, spark)
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
