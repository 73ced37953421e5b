"""``pulsar-spark doctor``, ``repair`` and ``durability``: a root's health, without broker or Java."""

from typing import Annotated

import typer

from pulsar_spark.cli.common import DryRun, Json, Root, admin, print_done, print_found, print_listed
from pulsar_spark.table_specs import LAYOUT_VERSION

UNSOUND = 1
app = typer.Typer(no_args_is_help=True)


def doctor(root: Root, as_json: Json = False):
    """Check the tables of a root. Exit code 0: no findings; 1: findings, each with its meaning and the command that
    repairs it."""
    root_admin = admin(root)
    findings = root_admin.doctor()
    rows = [(found["kind"], found["table"], found["text"], found["command"]) for found in findings]
    columns = ["finding", "table", "what it is", "command"]
    print_listed(findings, as_json, columns, rows, none=f"sound, layout {LAYOUT_VERSION}")
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
    dry_run: DryRun = False,
    as_json: Json = False,
):
    """Repair broken commits from their data files, and broken checkpoints from the commits. Exit code 1: something
    could not be repaired."""
    done = admin(root).repair(table, files=file or (), forget=forget, dry_run=dry_run)
    lines = [f"{repaired['table']}: {repaired['text']}" for repaired in done]
    print_found(done, as_json, "\n".join(lines) or "nothing to repair")
    if not all(repaired["is_done"] for repaired in done):
        raise typer.Exit(UNSOUND)


@app.command()
def get(root: Root, as_json: Json = False):
    """Show whether writes wait for the disk: fsync or none."""
    found = admin(root).get_durability()
    print_done(as_json, found, durability=found)


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
