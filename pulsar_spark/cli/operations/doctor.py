"""``pulsar-spark doctor``, ``repair`` and ``durability``: a root's health, without broker or Java."""

from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, admin, print_done, print_json, print_table
from pulsar_spark.table_specs import LAYOUT_VERSION

UNSOUND = 1
app = typer.Typer(no_args_is_help=True)


def doctor(root: Root, as_json: Json = False):
    """Check the tables of a root. Exit code 0: no findings; 1: findings, each with its meaning and the command that
    repairs it.
    """
    root_admin = admin(root)
    findings = root_admin.doctor()
    if as_json:
        print_json(findings)
    elif findings:
        print_table(
            ["finding", "table", "what it is", "command"],
            [(found["kind"], found["table"], found["text"], found["command"]) for found in findings],
        )
    else:
        typer.echo(f"sound, layout {LAYOUT_VERSION}")
    if findings:
        raise typer.Exit(UNSOUND)


def repair(
    root: Root,
    table: Annotated[
        str | None,
        typer.Argument(
            help="A topic, or requests, cursor_ledger or ledgers; by default all of these. Or delay-index, which is "
            "rebuilt from the topics, even while a broker serves."
        ),
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option("--file", help="A data file of the table's only broken commit; repeatable.")
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Replace a commit whose data is lost with one without rows.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
    as_json: Json = False,
):
    """Repair broken commits from their data files, and broken checkpoints from the commits. Exit code 1: something
    could not be repaired.
    """
    done = admin(root).repair(table, files=file or (), forget=forget, dry_run=dry_run)
    if as_json:
        print_json(done)
    else:
        for repaired in done:
            typer.echo(f"{repaired['table']}: {repaired['text']}")
        if not done:
            typer.echo("nothing to repair")
    if not all(repaired["is_done"] for repaired in done):
        raise typer.Exit(UNSOUND)


@app.command()
def get(root: Root, as_json: Json = False):
    """Show whether writes wait for the disk: fsync or none."""
    found = admin(root).get_durability()
    if as_json:
        print_json({"durability": found})
    else:
        typer.echo(found)


@app.command("set")
def set_(
    durability: Annotated[
        str, typer.Argument(help="fsync: a finished write survives a power loss; none: writes are faster.")
    ],
    root: Root,
    as_json: Json = False,
):
    """Set whether writes wait for the disk."""
    admin(root).set_durability(durability)
    print_done(as_json, f"durability {durability}", durability=durability)
