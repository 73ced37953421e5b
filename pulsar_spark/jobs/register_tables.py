"""Register a root's topics, its broker's tables and its SQL views in a catalog, for ``SELECT * FROM broker.orders``.

    python -m pulsar_spark.jobs.register_tables \\
        --root /data/pulsar --schema public/default=broker

Run it again after topics were created or deleted. It prints one line of JSON with the location of each table by name.
No broker is needed.
"""

import argparse
import json

from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.cli.operations.catalog import DEFAULT_CATALOG, schemas_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views.catalog import register


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the root: a folder or the URL of a store")
    parser.add_argument("--catalog", default=DEFAULT_CATALOG, help="name of the Spark catalog")
    parser.add_argument("--prefix", default="", help="prefix for the names of schemas")
    parser.add_argument(
        "--schema",
        action="append",
        default=[],
        help="'tenant/namespace=schema': the name of a namespace's schema; repeatable",
    )
    add_logging_arguments(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = parse_arguments(arguments)
    set_up_job_logging(given)
    schemas, layout = schemas_of(given.schema), Layout(given.root)
    spark = spark_session("pulsar_spark register_tables", root=given.root)
    print(json.dumps(register(spark, layout, given.catalog, given.prefix, schemas)), flush=True)


if __name__ == "__main__":
    with errors_as_one_line():
        main()
