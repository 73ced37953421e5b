"""The application and its entry point. Exit codes: 0 done, 1 refused or failed (one line says why and what to do), 2
wrong usage."""

from importlib.metadata import version
from typing import Annotated

import typer

from pulsar_spark.cli import (
    bundles,
    catalog,
    chunks,
    compaction,
    dead_letters,
    delayed,
    doctor,
    maintain,
    messages,
    namespaces,
    policies,
    processes,
    schemas,
    set_aside,
    stats,
    subscriptions,
    topics,
    waiting_letters,
)
from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import set_up_logging

app = typer.Typer(
    help="Apache Pulsar's broker semantics on Delta tables, executed by Apache Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(topics.app, name="topics", help="Create, list, describe and delete topics.")
app.add_typer(namespaces.app, name="namespaces", help="Create and list namespaces; set, get and remove what one has.")
app.add_typer(subscriptions.app, name="subscriptions", help="Create, list, move and delete subscriptions.")
app.add_typer(policies.app, name="policies", help="Show, set and remove the policies of a namespace or a topic.")
app.add_typer(bundles.app, name="bundles", help="List the bundles of a root, and split one.")
app.add_typer(schemas.app, name="schemas", help="Show, upload and remove the schemas that a topic keeps.")
app.add_typer(set_aside.app, name="set-aside", help="What the broker failed on and set aside: list, retry, drop.")
app.add_typer(dead_letters.app, name="dlq", help="List, count and send back dead letters.")
dead_letters.app.command("waiting")(waiting_letters.waiting)
dead_letters.app.command("retry-waiting")(waiting_letters.retry_waiting)
dead_letters.app.command("drop-waiting")(waiting_letters.drop_waiting)
app.add_typer(delayed.app, name="delayed", help="List, count, cancel and move what waits for its deliver time.")
app.add_typer(chunks.app, name="chunks", help="List and count chunked messages that are not complete.")
app.add_typer(maintain.app, name="maintain", help="Trim topics; optimize, vacuum and checkpoint tables.")
app.add_typer(catalog.app, name="catalog", help="Register topics and tables under names of a catalog, for SQL.")
app.add_typer(processes.broker_app, name="broker")
app.add_typer(doctor.app, name="durability", help="Show and set whether writes outlive a power loss.")
app.command()(doctor.doctor)
app.command()(doctor.repair)
app.command()(doctor.migrate)
app.command()(messages.produce)
app.command()(messages.consume)
app.command()(compaction.compact)
app.command()(stats.stats)
app.command()(processes.demo)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"pulsar-spark {version('pulsar-spark')}")
        raise typer.Exit()


@app.callback()
def options(
    is_version_asked: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and end.")
    ] = False,
):
    """What goes before a command."""


def main() -> None:
    """Run the command line."""
    with errors_as_one_line():
        set_up_logging()
        app()
