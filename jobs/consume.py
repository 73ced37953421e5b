"""The job ``pulsar_spark.jobs.consume`` as a file for spark-submit."""

from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.jobs.consume import main

if __name__ == "__main__":
    with errors_as_one_line():
        main()
