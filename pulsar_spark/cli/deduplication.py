"""``set-``, ``get-`` and ``remove-deduplication`` of ``pulsar-spark namespaces`` and ``pulsar-spark topics``, as
``pulsar-admin`` has them."""

from collections.abc import Callable
from typing import Annotated

import typer

from pulsar_spark.cli.common import ASKS_BROKER, Json, Root, TimeoutSeconds, admin, chosen, print_json, shows_work

Enable = Annotated[
    bool | None, typer.Option("--enable/--disable", "-e/-d", help="Whether what a producer sends again is left out.")
]


def add_commands(app: typer.Typer, of: type, full: Callable[[str], str]) -> None:
    """Add the three commands to *app*; their argument is of the type *of*, and *full* makes a scope of it."""

    @app.command("set-deduplication")
    @shows_work(ASKS_BROKER)
    def set_deduplication(scope: of, root: Root, enable: Enable = None, timeout: TimeoutSeconds = 30):
        """Set whether messages are stored once, by their producers' names and sequence ids."""
        admin(root, timeout).set_deduplication(full(scope), chosen(enable))
        typer.echo("set deduplication")

    @app.command("get-deduplication")
    def get_deduplication(scope: of, root: Root, as_json: Json = False):
        """Show what was set of it."""
        found = admin(root).get_deduplication(full(scope))
        if as_json:
            print_json(found)
        else:
            typer.echo("not set" if found is None else "on" if found else "off")

    @app.command("remove-deduplication")
    @shows_work(ASKS_BROKER)
    def remove_deduplication(scope: of, root: Root, timeout: TimeoutSeconds = 30):
        """Remove it, so that the namespace's or the default, which is off, applies again."""
        admin(root, timeout).remove_deduplication(full(scope))
        typer.echo("removed deduplication")
