"""spark-submit job: register a root's topics, its broker's tables and the views that are SQL under names of a catalog,
so that ``SELECT * FROM broker.orders`` works.

    spark-submit --properties-file conf/spark-defaults.conf jobs/register_tables.py --root /data/pulsar
    --schema public/default=broker

Run it again, or let a scheduler, when topics were made or deleted: new ones come, deleted ones go. It prints a line of
JSON: where each table lies, by its name. No broker is needed.
"""

import argparse
import json

from pulsar_spark.cli.catalog import DEFAULT_CATALOG, schemas_of
from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import add_logging_arguments, set_up_job_logging
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views.catalog import register


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--root", required=True, help="folder of the tables")
    parser.add_argument("--catalog", default=DEFAULT_CATALOG, help="of Spark's catalogs")
    parser.add_argument("--prefix", default="", help="goes before the names of schemas")
    parser.add_argument(
        "--schema",
        action="append",
        default=[],
        help="'tenant/namespace=schema': what the schema of a namespace is called; repeatable",
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
