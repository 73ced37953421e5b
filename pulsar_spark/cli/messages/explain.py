"""``pulsar-spark explain``."""

from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, admin, print_json, print_table, visible
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
_EVENT = {
    "time": "time",
    "event": "event",
    "subscription": "subscription",
    "consumer": "consumerName",
    "redelivered": "redeliveryCount",
    "until": "until",
}


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
    typer.echo(visible(f"message {found['messageId']} of {found['topic']}: {', '.join(about)}"))
    rows = [(name, why["why"], why["sentence"]) for name, why in found["subscriptions"].items()]
    print_table(["subscription", "why", ""], rows, none="no subscriptions")
    events = [[event.get(field) for field in _EVENT.values()] for event in found["life"]]
    print_table([*_EVENT], events)
