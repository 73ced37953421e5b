"""``pulsar-spark maintain``: upkeep of a root's tables."""

from typing import Annotated

import typer

from pulsar_spark.admin import upkeep
from pulsar_spark.cli.common import DryRun, Json, Root, note_missing, print_json, print_table, shows_work
from pulsar_spark.storage.layout import Layout

app = typer.Typer(no_args_is_help=True)
Topic = Annotated[
    str | None, typer.Argument(help="One topic or partition; by default, without --namespace, all of the root.")
]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Only the topics of 'tenant/namespace'.")]


@app.command()
@shows_work("trimming")
def trim(
    root: Root,
    topic: Topic = None,
    namespace: Namespace = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    before: Annotated[
        int | None,
        typer.Option("--before", min=0, help="Remove all messages below this position, regardless of retention."),
    ] = None,
):
    """Remove messages that every subscription has acknowledged and retention does not keep."""
    note_missing(root, namespace)
    _print(upkeep.trim(Layout(root), topic, namespace, before=before, dry_run=dry_run), as_json, dry_run)


@app.command()
@shows_work("joining files")
def optimize(
    root: Root, topic: Topic = None, namespace: Namespace = None, dry_run: DryRun = False, as_json: Json = False
):
    """Merge small files into larger ones."""
    note_missing(root, namespace)
    _print(upkeep.optimize(Layout(root), topic, namespace, dry_run=dry_run), as_json, dry_run)


@app.command()
@shows_work("deleting files")
def vacuum(
    root: Root,
    topic: Topic = None,
    namespace: Namespace = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    hours: Annotated[
        int, typer.Option("--hours", help="Keep files that tables have referred to within this many hours.")
    ] = upkeep.DEFAULT_VACUUM_HOURS,
):
    """Delete files that no table refers to any more."""
    note_missing(root, namespace)
    _print(upkeep.vacuum(Layout(root), topic, namespace, hours=hours, dry_run=dry_run), as_json, dry_run)


@app.command()
@shows_work("writing checkpoints")
def checkpoint(root: Root, topic: Topic = None, namespace: Namespace = None, as_json: Json = False):
    """Write checkpoints, so that tables open quickly."""
    note_missing(root, namespace)
    _print(upkeep.checkpoint(Layout(root), topic, namespace), as_json)


@app.command()
def housekeeping(root: Root, as_json: Json = False):
    """Show what brokers did automatically to keep tables small, latest last."""
    _print(upkeep.housekeeping(Layout(root)), as_json)


def _print(rows: list[dict], as_json: bool, dry_run: bool = False) -> None:
    if as_json:
        print_json(rows)
        return
    print_table([name for row in rows[:1] for name in row], [list(row.values()) for row in rows])
    if dry_run:
        typer.echo("dry run: nothing was changed")
