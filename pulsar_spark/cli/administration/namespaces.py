"""``pulsar-spark namespaces``: create and list them, and their policies."""

from typing import Annotated

import typer

from pulsar_spark.cli.common import (
    AWAITS_BROKER,
    Json,
    Root,
    TimeoutSeconds,
    admin,
    print_done,
    print_listed,
    shows_work,
)
from pulsar_spark.cli.policies import compaction, delayed_delivery, policies, policy_verbs
from pulsar_spark.protocol.topics.topic_name import parse_namespace

app = typer.Typer(no_args_is_help=True)
_ARGUMENT = typer.Argument(help="'tenant/namespace'.")
Namespace = Annotated[str, _ARGUMENT]


@app.command()
def create(namespace: Namespace, root: Root, as_json: Json = False):
    """Create a namespace, and its tenant if missing; public/default always exists."""
    admin(root).create_namespace(namespace)
    print_done(as_json, f"created {namespace}", namespace=namespace, created=True)


@app.command("list")
def list_(
    root: Root,
    tenant: Annotated[str | None, typer.Argument(help="The tenant; by default all of the root.")] = None,
    as_json: Json = False,
):
    """List the namespaces of a tenant, or of the root."""
    found = admin(root).namespaces(tenant)
    print_listed(found, as_json, ["namespace"], [(each,) for each in found])


@app.command()
@shows_work(AWAITS_BROKER)
def delete(
    namespace: Namespace,
    root: Root,
    force: Annotated[bool, typer.Option("--force", help="Delete its topics and their messages, too.")] = False,
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Delete a namespace with its policies. One with topics is deleted only with --force."""
    admin(root, timeout).delete_namespace(namespace, force)
    print_done(as_json, f"deleted {namespace}", namespace=namespace, deleted=True)


def _full_name(namespace: str) -> str:
    return "/".join(parse_namespace(namespace))


delayed_delivery.add_commands(app, _ARGUMENT, _full_name)
policies.add_deduplication(app, _ARGUMENT, _full_name)
compaction.add_commands(app, _ARGUMENT, _full_name)
policy_verbs.add_policy_verbs(app, _ARGUMENT, _full_name)
