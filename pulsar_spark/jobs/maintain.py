"""Tidy a root: trim topics, merge small files, delete old ones, write checkpoints.

Run it on a schedule. It needs no Spark, and a broker may run meanwhile.

    python -m pulsar_spark.jobs.maintain \\
        --root /data/pulsar --trim --optimize --vacuum-hours 168 --checkpoint

It does only the steps that the options name. The job prints one line of JSON per step.
"""

import argparse
import json

from pulsar_spark.admin import upkeep
from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.storage.layout import Layout


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the root: a folder or the URL of a store")
    parser.add_argument("--namespace", help="only the topics of 'tenant/namespace', and not the broker's tables")
    parser.add_argument(
        "--trim",
        action="store_true",
        help="remove messages that every subscription has acknowledged and retention does not keep",
    )
    parser.add_argument("--optimize", action="store_true", help="merge small files into larger ones")
    parser.add_argument("--vacuum-hours", type=int, help="delete files that no table has used for this many hours")
    parser.add_argument("--checkpoint", action="store_true", help="write checkpoints of the logs")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    add_logging_arguments(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    set_up_job_logging(given)
    layout, chosen = Layout(given.root), {"namespace": given.namespace}
    if given.trim:
        report("trim", upkeep.trim(layout, dry_run=given.dry_run, **chosen))
    if given.optimize:
        report("optimize", upkeep.optimize(layout, dry_run=given.dry_run, **chosen))
    if given.vacuum_hours is not None:
        report("vacuum", upkeep.vacuum(layout, hours=given.vacuum_hours, dry_run=given.dry_run, **chosen))
    if given.checkpoint and not given.dry_run:
        report("checkpoint", upkeep.checkpoint(layout, **chosen))


def report(step: str, rows: list[dict]) -> None:
    print(json.dumps({"step": step, "tables": rows}), flush=True)


if __name__ == "__main__":
    with errors_as_one_line():
        main()
