"""Shows messages as a line of facts each. Payloads are never printed; they may go to a file."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from pulsar_spark.cli.common import print_json
from pulsar_spark.client.model.message import Message
from pulsar_spark.errors import InvalidConfiguration, UnreadableMessage
from pulsar_spark.protocol.topics.message_id import MessageId, parse_message_id

Output = Annotated[
    Path | None, typer.Option("--output", "-o", dir_okay=False, help="Append the payloads to this file, one per line.")
]


def open_payloads(output: Path | None) -> contextlib.AbstractContextManager[BinaryIO | None]:
    """The file that payloads are appended to, None without *output*; :class:`InvalidConfiguration` if it cannot be
    written."""
    try:
        return output.open("ab") if output else contextlib.nullcontext()
    except OSError as wrong:
        raise InvalidConfiguration(f"--output {str(output)!r}: {wrong}: give a file that can be written") from wrong


def show_message(message: Message, payloads: BinaryIO | None, as_json: bool, **more: Any) -> None:
    """Print the facts of *message* and *more*, or why it is unreadable, and append its payload to *payloads*."""
    try:
        payload = message.data()
    except UnreadableMessage as error:
        payload, more = None, {**more, "unreadable": str(error)}
    context = message.encryption_context()
    if context is not None and context.is_decryption_failed():
        more = {**more, "encryptedFor": ",".join(key.key for key in context.keys())}
    facts = {
        "messageId": str(message.message_id()),
        **more,
        "key": message.partition_key() or None,
        "properties": dict(message.properties()),
        "size": None if payload is None else len(payload),
        "publishTimeMs": message.publish_timestamp(),
        "eventTimeMs": message.event_timestamp() or None,
        "topic": message.topic_name(),
    }
    if as_json:
        print_json(facts)
    else:
        extra = " ".join(f"{name}={value}" for name, value in more.items())
        properties = " ".join(f"{name}={value!r}" for name, value in facts["properties"].items())
        typer.echo(f"{facts['messageId']} {extra} key={facts['key']!r} size={facts['size']} {properties}".rstrip())
    if payloads and payload is not None:
        payloads.write(payload + b"\n")
        payloads.flush()


def show_all(messages: Iterable[Message], output: Path | None, as_json: bool) -> None:
    with open_payloads(output) as payloads:
        for message in messages:
            show_message(message, payloads, as_json, position=message._position)


def parse_place(text: str) -> int | MessageId:
    return int(text) if text.isascii() and text.isdecimal() else parse_message_id(text)
