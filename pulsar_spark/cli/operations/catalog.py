"""``pulsar-spark catalog``: register topics, broker tables and views in a catalog."""

from collections.abc import Sequence
from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, print_listed, shows_work
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.storage.layout import Layout

app = typer.Typer(no_args_is_help=True)
DEFAULT_CATALOG = "spark_catalog"


@app.callback()
def catalog():
    """Makes ``register`` a named command, although it is the only one."""


def schemas_of(given: Sequence[str]) -> dict[str, str]:
    """Parse ``--schema``: the schema of each namespace.

    >>> schemas_of(["public/default=broker", "acme/shop=shop"])
    {'public/default': 'broker', 'acme/shop': 'shop'}
    """
    found = {}
    for each in given:
        namespace, _, schema = each.partition("=")
        if not namespace or not schema:
            raise InvalidConfiguration(f"--schema {each!r}: give <tenant>/<namespace>=<schema>")
        if namespace in found:
            raise InvalidConfiguration(f"--schema has namespace {namespace!r} twice: give it one schema")
        found[namespace] = schema
    return found


@app.command()
@shows_work("registering")
def register(
    root: Root,
    catalog: Annotated[str, typer.Option("--catalog", help="Name of the Spark catalog.")] = DEFAULT_CATALOG,
    prefix: Annotated[str, typer.Option("--prefix", help="Prefix for the names of schemas.")] = "",
    schema: Annotated[
        list[str] | None,
        typer.Option("--schema", help="'tenant/namespace=schema': the name of a namespace's schema; repeatable."),
    ] = None,
    as_json: Json = False,
):
    """Register all topics, the broker's tables and the SQL views; deleted ones are removed. Starts Spark, whose
    settings (SPARK_CONF_DIR) determine where the catalog is stored."""
    from pulsar_spark.storage.session import spark_session
    from pulsar_spark.views.catalog import register as register_in

    schemas = schemas_of(schema or [])
    found = register_in(spark_session("pulsar_spark catalog", root=root), Layout(root), catalog, prefix, schemas)
    print_listed(found, as_json, ["name in SQL", "lies in"], found.items())
