"""``pulsar-spark explain``."""

import re
from collections.abc import Iterator
from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, admin, on_one_line, print_json
from pulsar_spark.protocol.topics.message_id import parse_message_id

_ABOUT = {
    "published": "publishTime",
    "by": "producerName",
    "sequence id": "sequenceId",
    "key": "key",
    "ordering key": "orderingKey",
    "event time": "eventTime",
    "deliver time": "deliverAtTime",
    "position": "position",
}
_TIME = re.compile(r"(T\d\d:\d\d:\d\d)(\.\d{3})?\d*\+00:00")


def explain(
    message_id: Annotated[str, typer.Argument(help="ledger:entry, with :partition and :batch if it has them.")],
    root: Root,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic of the message.")],
    subscription: Annotated[
        str | None, typer.Option("--subscription", "-s", help="Name of the subscription; by default all.")
    ] = None,
    as_json: Json = False,
):
    """Show what a message is, why it is where it is on each subscription, and what became of it, oldest event first.
    Needs no broker."""
    found = admin(root).explain(parse_message_id(message_id), subscription, topic)
    if as_json:
        print_json(found)
        return
    about = [f"{name} {found[field]}" for name, field in _ABOUT.items() if found[field] is not None]
    _print(f"message {found['messageId']} of {found['topic']}", f"  {', '.join(about)}", "")
    for name, why in found["subscriptions"].items():
        _print(f"{name}: {why['why']}", f"  {why['sentence']}")
    _print(*(["no subscriptions"] if not found["subscriptions"] else []), "")
    for event in found["life"]:
        _print(f"{event['time'] or 'time unknown'}  {' '.join(_of_event(event))}")


def _of_event(event: dict) -> Iterator[str]:
    yield event["event"].replace("_", " ")
    if event.get("subscription") is not None:
        yield f"on {event['subscription']}"
    if event.get("consumerName") is not None:
        yield f"by {event['consumerName']}" if event["event"] == "acknowledged" else f"to {event['consumerName']}"
    if event.get("redeliveryCount"):
        yield f"redelivered {event['redeliveryCount']}"
    if event.get("until") is not None:
        yield f"until {event['until']}"


def _print(*lines: str) -> None:
    for line in lines:
        typer.echo(_TIME.sub(r"\1\2Z", on_one_line(line)))
