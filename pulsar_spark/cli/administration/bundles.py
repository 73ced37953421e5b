"""``pulsar-spark bundles``: list the bundles of a root, and split one."""

from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, admin, print_found, shows_work
from pulsar_spark.errors import InvalidConfiguration

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(root: Root, as_json: Json = False):
    """List the bundles: the range of hashes of each, how many topics it has, and which broker serves it."""
    found = admin(root).bundles()
    lines = (f"{each['bundle']}  {each['topics']} topics  {each['broker'] or 'no broker'}" for each in found)
    print_found(found, as_json, "\n".join(lines))


@app.command("split")
@shows_work("splitting")
def split(
    bundle: Annotated[str, typer.Argument(help="The bundle, as 'pulsar-spark bundles list' shows it.")],
    root: Root,
    at: Annotated[
        str | None, typer.Option("--at", help="The first hash of the second part; by default the middle.")
    ] = None,
    as_json: Json = False,
):
    """Split a bundle in two, so that two brokers can serve it. A broker that serves it pauses during the split. No
    message moves, and consumers of the second part reconnect by themselves."""
    halves = admin(root).split_bundle(bundle, None if at is None else _hash(at))
    print_found(halves, as_json, f"{bundle} is split into {' and '.join(halves)}")


def _hash(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise InvalidConfiguration(f"--at {text!r}: give a hash such as 0x80000000") from None
