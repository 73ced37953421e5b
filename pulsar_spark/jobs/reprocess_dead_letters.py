"""Send dead letters back to be consumed again, each at most once per job id.

    python -m pulsar_spark.jobs.reprocess_dead_letters \\
        --root /data/pulsar --topic orders --subscription billing --job-id repair-2026-01-31 \\
        --where "cause = 'max_redeliver_count'" --fix repairs:add_tail

Give each scheduled run its own --job-id, such as the date. A repeated failed run with the same id continues where it
stopped. The job ends when all letters that existed at its start are handled, with exit code 0. Letters that another run
has sent are left out.
"""

import argparse

from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.letters.dead_letters import load_function, parse_time, print_report
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.frames.letters.reprocess import CHUNK_LETTERS, MAX_REPLAYS, reprocess_dead_letters
from pulsar_spark.storage.session import spark_session


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the root: a folder or the URL of a store")
    parser.add_argument(
        "--topic",
        required=True,
        help="the topic on which the letters died; without --subscription, the dead letter topic",
    )
    parser.add_argument("--subscription", help="the subscription on which the letters died")
    parser.add_argument(
        "--job-id",
        required=True,
        help="id of the run; a run with an id used before continues that run and sends nothing twice",
    )
    parser.add_argument("--where", help="send only letters for which this SQL condition is true")
    parser.add_argument("--since", help="send only letters written at or after this time")
    parser.add_argument("--until", help="send only letters written before this time")
    parser.add_argument("--key", action="append", help="send only letters with this key; repeatable")
    parser.add_argument(
        "--to",
        default="subscription",
        help="'subscription' (the one they died on), 'origin' (its topic, so every subscription) or 'topic:<name>'",
    )
    parser.add_argument("--fix", help="module:function that gets the letters as a DataFrame and returns those to send")
    parser.add_argument("--rate", type=float, help="send at most this many messages per second")
    parser.add_argument(
        "--max-replays",
        type=int,
        default=MAX_REPLAYS,
        help="leave out letters that were already sent back this many times",
    )
    parser.add_argument("--limit", type=int, help="send at most this many letters")
    parser.add_argument("--chunk-letters", type=int, default=CHUNK_LETTERS, help="letters per commit")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent, and send nothing")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_logging_arguments(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    set_up_job_logging(given)
    fix, since, until = (
        load_function("--fix", given.fix),
        parse_time("--since", given.since),
        parse_time("--until", given.until),
    )
    report = reprocess_dead_letters(
        spark_session("pulsar_spark reprocess_dead_letters", root=given.root),
        given.root,
        given.topic,
        job_id=given.job_id,
        subscription=given.subscription,
        where=given.where,
        since=since,
        until=until,
        keys=given.key,
        fix=fix,
        to=given.to,
        rate=given.rate,
        max_replays=given.max_replays,
        limit=given.limit,
        chunk_letters=given.chunk_letters,
        dry_run=given.dry_run,
    )
    print_report(report, given.json)


if __name__ == "__main__":
    with errors_as_one_line():
        main()
