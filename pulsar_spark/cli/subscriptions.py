"""``pulsar-spark subscriptions ...``: all but ``list`` and ``peek`` ask the broker and wait for its answer."""

import datetime
from typing import Annotated

import typer

from pulsar_spark.cli.common import (
    ASKS_BROKER,
    Json,
    Root,
    Subscription,
    TimeoutSeconds,
    Topic,
    admin,
    named_time,
    print_json,
    print_table,
    shows_work,
)
from pulsar_spark.cli.shown import Output, parse_place, show_all
from pulsar_spark.errors import InvalidConfiguration

app = typer.Typer(no_args_is_help=True)


@app.command()
@shows_work(ASKS_BROKER)
def create(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    position: Annotated[str, typer.Option("--position", help="'earliest' or 'latest'.")] = "latest",
    timeout: TimeoutSeconds = 30,
):
    """Create a subscription; the topic too, where it does not exist."""
    admin(root, timeout).create_subscription(topic, subscription, position)
    typer.echo(f"created {subscription}")


@app.command("list")
def list_(topic: Topic, root: Root, as_json: Json = False):
    """List the subscriptions of a topic."""
    found = admin(root).subscriptions(topic)
    if as_json:
        print_json(found)
    else:
        print_table(["subscription"], [(name,) for name in found])


@app.command()
@shows_work(ASKS_BROKER)
def delete(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    force: Annotated[bool, typer.Option("--force", help="Also while consumers are connected.")] = False,
    timeout: TimeoutSeconds = 30,
):
    """Delete a subscription."""
    admin(root, timeout).unsubscribe(topic, subscription, force)
    typer.echo(f"deleted {subscription}")


@app.command()
@shows_work(ASKS_BROKER)
def skip(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Messages to skip.")],
    timeout: TimeoutSeconds = 30,
):
    """Acknowledge the next messages of the backlog unseen; says how many there were to skip."""
    typer.echo(f"skipped {admin(root, timeout).skip_messages(topic, subscription, count)}")


@app.command("skip-lost")
def skip_lost(
    topic: Topic, subscription: Subscription, root: Root, as_json: Json = False, timeout: TimeoutSeconds = 30
):
    """Acknowledge the messages whose file is gone or damaged ('topics lost' lists them)."""
    skipped = admin(root, timeout).skip_lost(topic, subscription)
    if as_json:
        print_json({"skipped": skipped})
    else:
        typer.echo(f"skipped {skipped}")


@app.command()
def peek(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Messages to show.")] = 1,
    at: Annotated[str, typer.Option("--at", help="Only from here on: a position, or ledger:entry:partition.")] = "0",
    output: Output = None,
    as_json: Json = False,
):
    """Show the next messages of the backlog without acknowledging or moving anything; with --json one line of JSON
    each."""
    show_all(admin(root).peek_messages(topic, subscription, count, parse_place(at)), output, as_json)


@app.command("clear-backlog")
@shows_work(ASKS_BROKER)
def clear_backlog(topic: Topic, subscription: Subscription, root: Root, timeout: TimeoutSeconds = 30):
    """Acknowledge everything published so far."""
    admin(root, timeout).clear_backlog(topic, subscription)
    typer.echo(f"cleared the backlog of {subscription}")


@app.command()
@shows_work(ASKS_BROKER)
def expire(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="Age above which messages are acknowledged.")],
    timeout: TimeoutSeconds = 30,
):
    """Acknowledge what was published more than so many seconds ago."""
    admin(root, timeout).expire_messages(topic, subscription, seconds)
    typer.echo(f"expired what is older than {seconds} s")


@app.command()
@shows_work(ASKS_BROKER)
def seek(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    to: Annotated[
        str, typer.Option("--to", help="'earliest', 'latest', a position, or a time such as 2026-01-31T12:00:00Z.")
    ],
    timeout: TimeoutSeconds = 30,
):
    """Move the cursor of a subscription."""
    admin(root, timeout).reset_cursor(topic, subscription, parse_target(to))
    typer.echo(f"moved {subscription} to {to}")


def parse_target(text: str) -> str | int | datetime.datetime:
    """What ``--to`` means; a time without a zone is UTC."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return named_time(text)
    except ValueError:
        raise InvalidConfiguration(
            f"--to {text!r}: give 'earliest', 'latest', a position (0, 1, 2...) or a time such as 2026-01-31T12:00:00Z"
        ) from None
