"""``pulsar-spark subscriptions``: all but ``list``, ``hashes`` and ``peek`` wait for the broker."""

import datetime
import itertools
from typing import Annotated, Any, Literal, cast

import typer

from pulsar_spark.cli.common import (
    AWAITS_BROKER,
    CreateTopic,
    Force,
    Json,
    Root,
    Subscription,
    TimeoutSeconds,
    Topic,
    admin,
    print_done,
    print_json,
    print_listed,
    print_table,
    progress_console,
    shows_work,
)
from pulsar_spark.cli.messages.shown import Output, parse_place, show_all
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.delays.instants import named_time
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import existing_topic

app = typer.Typer(no_args_is_help=True)

_ENDS: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}
_SHOWN_RANGES = 3
_SHOWN_HASHES = 20


@app.command()
@shows_work(AWAITS_BROKER)
def create(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    position: Annotated[str, typer.Option("--position", help="'earliest' or 'latest'.")] = "latest",
    create_topic: CreateTopic = False,
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Create a subscription on a topic; --create also creates a missing topic."""
    if not create_topic:
        existing_topic(Layout(root), topic, "--create")
    checked_there = cast(Any, position)
    admin(root, timeout).create_subscription(topic, subscription, checked_there, create=create_topic)
    print_done(as_json, f"created {subscription}", topic=topic, subscription=subscription, created=True)


@app.command("list")
def list_(topic: Topic, root: Root, as_json: Json = False):
    """List the subscriptions of a topic."""
    found = admin(root).subscriptions(topic)
    print_listed(found, as_json, ["subscription"], [(name,) for name in found])


@app.command()
@shows_work(AWAITS_BROKER)
def delete(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    force: Force = False,
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Delete a subscription."""
    admin(root, timeout).unsubscribe(topic, subscription, force)
    print_done(as_json, f"deleted {subscription}", topic=topic, subscription=subscription, deleted=True)


@app.command()
@shows_work(AWAITS_BROKER)
def skip(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Entries to skip: a batch counts as one.")],
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Acknowledge the next entries of the backlog without delivering them, and print how many were skipped. A batch is
    one entry."""
    skipped = admin(root, timeout).skip_messages(topic, subscription, count)
    print_done(as_json, f"skipped {skipped}", skipped=skipped)
    if skipped and not as_json:
        progress_console.print("a batch counts as one", highlight=False)


@app.command("skip-lost")
def skip_lost(
    topic: Topic, subscription: Subscription, root: Root, as_json: Json = False, timeout: TimeoutSeconds = 30
):
    """Acknowledge the messages whose file is missing or damaged ('topics lost' lists them)."""
    skipped = admin(root, timeout).skip_lost(topic, subscription)
    print_done(as_json, f"skipped {skipped}", skipped=skipped)


@app.command()
def hashes(topic: Topic, subscription: Subscription, root: Root, as_json: Json = False):
    """Show which consumer of a Key_Shared subscription owns which hashes, and which hashes wait for another
    consumer."""
    ranges, waiting = admin(root).hash_ranges(topic, subscription), admin(root).draining_hashes(topic, subscription)
    if as_json:
        print_json({"ranges": ranges, "draining": waiting})
        return
    print_table(["partition", "consumer", "hash ranges", "share"], _owners(ranges), none="nobody is connected")
    print_table(
        ["partition", "hash", "owner", "waits for", "messages", "first", "why"],
        [
            (
                each["partition"],
                each["sticky_key_hash"],
                each["owner_name"] or "nobody",
                each["consumer_name"],
                each["messages"],
                each["first"],
                "drains" if each["is_draining"] else f"given back, comes again at {each['due_time']}",
            )
            for each in waiting[:_SHOWN_HASHES]
        ],
        "hashes that wait",
    )
    if len(waiting) > _SHOWN_HASHES:
        typer.echo(f"and {len(waiting) - _SHOWN_HASHES} more: --json shows all")


def _owners(ranges: list[dict]) -> list[tuple]:
    owned: dict[tuple, list[dict]] = {}
    for each in ranges:
        owned.setdefault((each["partition"], each["consumer_id"], each["consumer_name"]), []).append(each)
    rows = []
    for (partition, _, name), own in owned.items():
        share = sum((each["range_end"] - each["range_start"] + 1) / each["sharers"] / each["axis_size"] for each in own)
        listed = ", ".join(f"[{each['range_start']}, {each['range_end']}]" for each in own[:_SHOWN_RANGES])
        more = f" and {len(own) - _SHOWN_RANGES} more" if len(own) > _SHOWN_RANGES else ""
        rows.append((partition, name or "nobody", listed + more, f"{share:.1%}"))
    return rows


@app.command()
def peek(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Messages to show.")] = 1,
    at: Annotated[str, typer.Option("--at", help="Start here: a position, or ledger:entry:partition.")] = "0",
    output: Output = None,
    as_json: Json = False,
):
    """Show the next messages of the backlog without acknowledging or moving anything; with --json one line of JSON
    each."""
    backlog = admin(root).backlog(topic, subscription, parse_place(at))
    show_all(itertools.islice(backlog, count), output, as_json)


@app.command("clear-backlog")
@shows_work(AWAITS_BROKER)
def clear_backlog(
    topic: Topic, subscription: Subscription, root: Root, timeout: TimeoutSeconds = 30, as_json: Json = False
):
    """Acknowledge everything published so far."""
    admin(root, timeout).clear_backlog(topic, subscription)
    print_done(as_json, f"cleared the backlog of {subscription}", topic=topic, subscription=subscription, cleared=True)


@app.command()
@shows_work(AWAITS_BROKER)
def expire(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="Age above which messages are acknowledged.")],
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Acknowledge messages that were published more than this many seconds ago."""
    admin(root, timeout).expire_messages(topic, subscription, seconds)
    text = f"expired messages older than {shown_seconds(seconds)}"
    print_done(as_json, text, topic=topic, subscription=subscription, expiredSeconds=seconds)


@app.command()
@shows_work(AWAITS_BROKER)
def seek(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    to: Annotated[
        str, typer.Option("--to", help="'earliest', 'latest', a position, or a time such as 2026-01-31T12:00:00Z.")
    ],
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Move the cursor of a subscription."""
    admin(root, timeout).reset_cursor(topic, subscription, parse_target(to))
    print_done(as_json, f"moved {subscription} to {to}", topic=topic, subscription=subscription, position=to)


def parse_target(text: str) -> Literal["earliest", "latest"] | int | datetime.datetime:
    """Times are by default in UTC."""
    if text in _ENDS:
        return _ENDS[text]
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return named_time(text)
    except ValueError:
        raise InvalidConfiguration(
            f"--to {text!r}: give 'earliest', 'latest', a position (0, 1, 2...) or a time such as 2026-01-31T12:00:00Z"
        ) from None
