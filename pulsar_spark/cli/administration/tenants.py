"""``pulsar-spark tenants``."""

from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, admin, print_done, print_listed

app = typer.Typer(no_args_is_help=True)
Tenant = Annotated[str, typer.Argument(help="Name of the tenant: the first part of a namespace's name.")]


@app.command("list")
def list_(root: Root, as_json: Json = False):
    """List the tenants. A tenant is only a folder of namespaces: it has no settings."""
    found = admin(root).tenants()
    print_listed(found, as_json, ["tenant"], [(each,) for each in found])


@app.command()
def create(tenant: Tenant, root: Root, as_json: Json = False):
    """Create a tenant. 'namespaces create' creates a missing tenant, too."""
    admin(root).create_tenant(tenant)
    print_done(as_json, f"created {tenant}", tenant=tenant, created=True)


@app.command()
def delete(tenant: Tenant, root: Root, as_json: Json = False):
    """Delete a tenant that has no namespaces."""
    admin(root).delete_tenant(tenant)
    print_done(as_json, f"deleted {tenant}", tenant=tenant, deleted=True)
