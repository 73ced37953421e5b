"""``set-``, ``get-`` and ``remove-deduplication`` of ``pulsar-spark namespaces`` and ``pulsar-spark topics``, as
``pulsar-admin`` has them."""

from collections.abc import Callable
from typing import Annotated

import typer

from pulsar_spark.cli.common import ASKS_BROKER, Root, TimeoutSeconds, admin, chosen, shows_work
from pulsar_spark.cli.policies import add_get_and_remove

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

    add_get_and_remove(app, of, full, "deduplication", lambda found: "on" if found else "off", "off")
