"""List the jobs, or print what spark-submit needs to run one.

    python -m pulsar_spark.jobs --properties > pulsar_spark.conf
    spark-submit --properties-file pulsar_spark.conf "$(python -m pulsar_spark.jobs consume)" --help

Without spark-submit, a job starts Spark itself: python -m pulsar_spark.jobs.consume --help
"""

import argparse
import importlib
import pkgutil
from pathlib import Path

from pulsar_spark import jobs
from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.storage.session import settings_to_submit


def job_names() -> list[str]:
    """The modules of this package that are jobs."""
    return sorted(each.name for each in pkgutil.iter_modules(jobs.__path__) if each.name != "__main__")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pulsar_spark.jobs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", nargs="?", choices=job_names(), help="print the path of this job's file")
    parser.add_argument("--properties", action="store_true", help="print settings for --properties-file")
    parser.add_argument("--root", help="with --properties: a root whose object store Spark shall read")
    given = parser.parse_args(arguments)
    if given.properties:
        print(*(f"{name} {value}" for name, value in settings_to_submit(given.root).items()), sep="\n")
    elif given.job:
        print(Path(jobs.__path__[0]) / f"{given.job}.py")
    else:
        for name in job_names():
            print(f"{name:24}{(importlib.import_module(f'pulsar_spark.jobs.{name}').__doc__ or '').splitlines()[0]}")


if __name__ == "__main__":
    with errors_as_one_line():
        main()
