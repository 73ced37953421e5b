"""``pulsar-spark set-aside``: requests, topics and subscriptions on which the broker failed."""

from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, TimeoutSeconds, admin, print_done, print_listed

app = typer.Typer(no_args_is_help=True)
Id = Annotated[str | None, typer.Argument(help="As 'set-aside list' shows it.")]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


@app.command("list")
def list_(root: Root, as_json: Json = False):
    """List requests and topics that the broker set aside, and why."""
    found = admin(root).set_aside()
    rows = [(entry["id"], entry["error"], entry["text"], entry["time"]) for entry in found]
    print_listed(found, as_json, ["id", "error", "cause", "since"], rows)


@app.command()
def retry(
    root: Root, entry_id: Id = None, all_entries: All = False, timeout: TimeoutSeconds = 30, as_json: Json = False
):
    """Make another try at a request or topic that the broker set aside, or at all. If it fails again, it stays set
    aside."""
    count = admin(root, timeout).retry_set_aside(entry_id, all_entries=all_entries)
    print_done(as_json, f"tried {count} again", tried=count)


@app.command()
def drop(
    root: Root, entry_id: Id = None, all_entries: All = False, timeout: TimeoutSeconds = 30, as_json: Json = False
):
    """Drop one request that is set aside, or all requests."""
    count = admin(root, timeout).drop_set_aside(entry_id, all_entries=all_entries)
    print_done(as_json, f"dropped {count}", dropped=count)
