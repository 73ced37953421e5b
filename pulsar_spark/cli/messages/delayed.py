"""``pulsar-spark delayed``: delayed messages, without Spark. Payloads are never printed; they may go to a file."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from pulsar_spark.cli.common import (
    DryRun,
    Json,
    Limit,
    Root,
    TimeoutSeconds,
    Topic,
    admin,
    print_json,
    print_table,
    shows_work,
    working,
)
from pulsar_spark.cli.letters.dead_letters import parse_seconds, parse_time
from pulsar_spark.cli.logs import with_parameters
from pulsar_spark.cli.messages.messages import parse_property
from pulsar_spark.cli.messages.shown import Output, open_payloads
from pulsar_spark.protocol.topics.message_id import parse_message_id

app = typer.Typer(no_args_is_help=True)

OneSubscription = Annotated[str | None, typer.Option("--subscription", "-s", help="Only this subscription.")]
Since = Annotated[str | None, typer.Option("--since", help="Due at or after this time, such as 2026-01-31T12:00:00Z.")]
Until = Annotated[str | None, typer.Option("--until", help="Due before this time.")]
Keys = Annotated[list[str] | None, typer.Option("--key", "-k", help="With this key; repeatable.")]
OfProperties = Annotated[
    list[str] | None, typer.Option("--property", "-p", help="With this property, as name=value; repeatable.")
]
Ids = Annotated[
    list[str] | None, typer.Option("--id", "-i", help="This message, as ledger:entry:partition; repeatable.")
]
Every = Annotated[bool, typer.Option("--all", help="All waiting messages of the topic.")]
Reason = Annotated[str | None, typer.Option("--reason", help="The reason, for the history.")]


def _chosen(
    subscription: OneSubscription = None,
    since: Since = None,
    until: Until = None,
    key: Keys = None,
    of_property: OfProperties = None,
    message_id: Ids = None,
) -> dict:
    return {
        "subscription": subscription,
        "since": parse_time("--since", since),
        "until": parse_time("--until", until),
        "keys": key or (),
        "properties": dict(parse_property(text) for text in of_property or ()),
        "ids": [parse_message_id(text) for text in message_id or ()],
    }


Chosen = Annotated[dict, "the arguments of the options that chooses adds"]


def chooses(command: Callable) -> Callable:
    """Decorate a command: replace its parameter *chosen* by the options of :func:`_chosen`."""
    options, own = (inspect.signature(each).parameters for each in (_chosen, command))

    @functools.wraps(command)
    def run(**given):
        chosen = _chosen(**{name: given.pop(name) for name in options})
        return command(chosen=chosen, **given)

    required = [each for each in own.values() if each.default is each.empty and each.name != "chosen"]
    others = [each for each in own.values() if each.default is not each.empty]
    return with_parameters(run, [*required, *options.values(), *others])


@app.command("list")
@chooses
def list_(topic: Topic, root: Root, chosen: Chosen, limit: Limit = 20, output: Output = None, as_json: Json = False):
    """List messages that wait for their deliver time, earliest first; with --json one line of JSON each."""
    with open_payloads(output) as payloads:
        found = admin(root).scheduled(topic, **chosen, with_payload=output is not None)
        rows = []
        for row in itertools.islice(found, limit):
            payload = row.pop("payload", None)
            if payloads:
                payloads.write((payload or b"") + b"\n")
            if as_json:
                print_json(row)
            else:
                rows.append(row)
    if not as_json:
        print_table(
            ["message", "due", "key", "properties", "waits for it"],
            [
                (
                    row["messageId"],
                    row["dueTime"].replace("T", " ").removesuffix("+00:00"),
                    row["key"],
                    " ".join(f"{name}={value!r}" for name, value in row["properties"].items()),
                    ", ".join(row["subscriptions"]),
                )
                for row in rows
            ],
            none="nothing waits",
        )


@app.command()
@shows_work("counting what waits")
@chooses
def count(topic: Topic, root: Root, chosen: Chosen, as_json: Json = False):
    """Count messages that wait for their deliver time, in total and by subscription."""
    found = admin(root).count_scheduled(topic, **chosen)
    if as_json:
        print_json(found)
        return
    typer.echo(f"{found['entries']} wait" + (f", from {found['firstDueTime']} on" if found["entries"] else ""))
    if found["subscriptions"]:
        print_table(["subscription", "waits for"], list(found["subscriptions"].items()))


@app.command()
@chooses
def cancel(
    topic: Topic,
    root: Root,
    chosen: Chosen,
    every: Every = False,
    reason: Reason = None,
    dry_run: DryRun = False,
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Cancel waiting messages: they are acknowledged and never delivered. Messages that were delivered meanwhile are
    not changed."""
    with _progress("cancelling") as show_progress:
        done = admin(root, timeout).cancel_scheduled(
            topic, every=every, reason=reason, dry_run=dry_run, tell=show_progress, **chosen
        )
    _print_done("cancelled", done, as_json)


@app.command()
@chooses
def reschedule(
    topic: Topic,
    root: Root,
    chosen: Chosen,
    to: Annotated[str | None, typer.Option("--to", help="The new time; a past time means at once.")] = None,
    by: Annotated[
        float | None,
        typer.Option("--by", help="Move each message by this many seconds; a negative number means earlier."),
    ] = None,
    every: Every = False,
    reason: Reason = None,
    dry_run: DryRun = False,
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Change the deliver time of waiting messages. Messages that were delivered meanwhile are not changed."""
    with _progress("rescheduling") as show_progress:
        done = admin(root, timeout).reschedule(
            topic,
            to=parse_time("--to", to),
            by=parse_seconds("--by", by),
            every=every,
            reason=reason,
            dry_run=dry_run,
            tell=show_progress,
            **chosen,
        )
    _print_done("moved", done, as_json)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int], None]]:
    with working(what) as status:
        yield lambda entries: status.update(f"{what}: {entries:,} so far")


def _print_done(what: str, done: dict, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    selected, of_them = sum(done["selected"].values()), sum(done["done"].values())
    if done["isDryRun"]:
        typer.echo(f"{selected} would be {what}")
    elif of_them == selected:
        typer.echo(f"{of_them} {what}")
    else:
        typer.echo(f"{of_them} of {selected} {what}; the others were delivered or acknowledged meanwhile")
    if done["selected"]:
        print_table(
            ["subscription", "selected", what],
            [(name, count, done["done"].get(name, 0)) for name, count in done["selected"].items()],
        )
