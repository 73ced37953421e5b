"""``pulsar-spark namespaces``: make and list them, and what is set of one."""

from typing import Annotated

import typer

from pulsar_spark.cli import compaction, delayed_delivery, policies
from pulsar_spark.cli.common import Json, Root, admin, print_listed

app = typer.Typer(no_args_is_help=True)
Namespace = Annotated[str, typer.Argument(help="'tenant/namespace'.")]


@app.command()
def create(namespace: Namespace, root: Root):
    """Make a namespace, and its tenant; public/default is always there."""
    admin(root).create_namespace(namespace)
    typer.echo(f"created {namespace}")


@app.command("list")
def list_(
    root: Root,
    tenant: Annotated[str | None, typer.Argument(help="All of the root without it.")] = None,
    as_json: Json = False,
):
    """List the namespaces of a tenant, or of the root."""
    found = admin(root).namespaces(tenant)
    print_listed(found, as_json, ["namespace"], [(each,) for each in found])


delayed_delivery.add_commands(app, Namespace, str)
policies.add_deduplication(app, Namespace, str)
compaction.add_commands(app, Namespace, str)
