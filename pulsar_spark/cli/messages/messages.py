"""``pulsar-spark produce`` and ``consume``. Payloads are never printed: ``consume --output`` writes them to a file."""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple, cast

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import pulsar_spark
from pulsar_spark.cli.common import (
    CreateTopic,
    Json,
    Root,
    Subscription,
    Topic,
    print_done,
    progress_console,
    service_url,
)
from pulsar_spark.cli.letters.dead_letters import parse_seconds, parse_time
from pulsar_spark.cli.messages.shown import Output, open_payloads, show_message
from pulsar_spark.cli.signals import exit_code, stopping_on_signals
from pulsar_spark.client.sending.send_outcomes import Answered
from pulsar_spark.errors import (
    InvalidConfiguration,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    PulsarSparkError,
    Timeout,
    TopicNotFound,
    UnreadableMessage,
)
from pulsar_spark.link.requester import require_root
from pulsar_spark.protocol.delays.instants import deliver_millis
from pulsar_spark.protocol.keys.key_shared import hash_ranges_of
from pulsar_spark.protocol.subscriptions.membership import SUBSCRIPTION_TYPES
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import existing_topic, is_root, resolve_topic

MAX_PENDING_MESSAGES = 20_000
LOOK_SECONDS = 0.5
"""The longest wait before signals are checked."""


class Content(NamedTuple):
    payload: bytes
    key: str | None


def produce(
    topic: Topic,
    root: Root,
    messages: Annotated[
        list[str] | None,
        typer.Argument(help="Messages to publish; by default, without --file, the lines of standard input."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", exists=True, dir_okay=False, help="Publish the lines of a file.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every message.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", help="Split each message into key and payload at its first occurrence."),
    ] = None,
    separator: Annotated[
        str | None, typer.Option("--separator", help="Split each message argument into several messages.")
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="Property of each message; repeatable."),
    ] = None,
    times: Annotated[
        int, typer.Option("--num-produce", "-n", min=1, help="How often to publish the message arguments.")
    ] = 1,
    rate: Annotated[float, typer.Option("--rate", "-r", min=0, help="Messages a second; 0 = as fast as possible.")] = 0,
    deliver_at: Annotated[
        str | None, typer.Option("--deliver-at", help="Time of delivery, such as 2026-01-31T12:00:00Z.")
    ] = None,
    deliver_after: Annotated[
        float | None, typer.Option("--deliver-after", help="Deliver each message this many seconds after it is sent.")
    ] = None,
    chunking: Annotated[
        bool, typer.Option("--chunking", "-c", help="Send messages above the maximum message size in chunks.")
    ] = False,
    as_json: Json = False,
):
    """Publish messages. A missing topic is created, as by Pulsar's client, with a notice."""
    if messages and file:
        raise InvalidConfiguration("messages are given both as arguments and by --file: choose one")
    _check_text("--key", key)
    options = {
        "properties": dict(parse_property(text) for text in property_ or ()) or None,
        "deliver_at": _milliseconds(deliver_at),
        "deliver_after": parse_seconds("--deliver-after", deliver_after),
    }
    if deliver_at and deliver_after is not None:
        raise InvalidConfiguration("--deliver-at and --deliver-after exclude each other: choose one")
    contents = _contents(messages, file, separator, times)
    keyed = (_split_key(payload, key, os.fsencode(key_separator) if key_separator else None) for payload in contents)
    made = _what_is_made(Layout(root), topic)
    client = pulsar_spark.Client(service_url(root))
    try:
        producer = client.create_producer(
            topic, block_if_queue_full=True, max_pending_messages=MAX_PENDING_MESSAGES, chunking_enabled=chunking
        )
        sent = _publish(producer, keyed, options, rate)
    finally:
        client.close()
    last = f", the last one is {sent['lastMessageId']}" if sent["produced"] else ""
    text = f"{sent['produced']} message{'s' * (sent['produced'] != 1)} published to {topic}{made}{last}"
    print_done(as_json, text, topic=topic, **sent)


def _what_is_made(layout: Layout, topic: str) -> str:
    """Text that names what a producer creates, so that a typing error is noticed."""
    if not is_root(layout):
        return f" in the new root {str(layout.root)!r}"
    try:
        resolve_topic(layout, topic)
    except TopicNotFound:
        return ", which is a new topic"
    return ""


def _contents(messages: list[str] | None, file: Path | None, separator: str | None, times: int) -> Iterator[bytes]:
    if messages:
        split = [part for text in messages for part in (text.split(separator) if separator else [text])]
        for text in itertools.chain.from_iterable(itertools.repeat(split, times)):
            yield os.fsencode(text)  # invalid UTF-8 in an argument stays the original bytes
    elif file:
        with file.open("rb") as lines:
            yield from _lines(lines)
    else:
        yield from _lines(sys.stdin.buffer)


def _lines(lines: BinaryIO) -> Iterator[bytes]:
    for line in lines:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _split_key(payload: bytes, key: str | None, separator: bytes | None) -> Content:
    if separator is None or separator not in payload:
        return Content(payload, key)
    own_key, _, rest = payload.partition(separator)
    return Content(rest, own_key.decode(errors="replace"))


def parse_property(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise InvalidConfiguration(f"property {text!r}: give NAME=VALUE")
    _check_text("property", text)
    return name, value


def _check_text(what: str, text: str | None) -> None:
    """:class:`InvalidConfiguration` for an argument with invalid UTF-8, which Python keeps as surrogates."""
    try:
        (text or "").encode()
    except UnicodeEncodeError as broken:
        raise InvalidConfiguration(f"{what} {text!r} cannot be encoded as UTF-8: give another") from broken


def _milliseconds(text: str | None) -> int | None:
    found = parse_time("--deliver-at", text)
    return None if found is None else deliver_millis(found)


class _Answers(Answered):
    """The outcome of all messages. ``is_over_quota``: a backlog quota blocks the rest."""

    def __init__(self) -> None:
        self.published, self.is_over_quota = 0, False
        self.last_id: MessageId | None = None
        self.error: PulsarSparkError | None = None

    def __call__(self, error: PulsarSparkError | None, message_id: MessageId | None) -> None:
        if error is None:
            self.published, self.last_id = self.published + 1, message_id
        else:
            self.error = self.error or error
            self.is_over_quota |= isinstance(
                error, ProducerBlockedQuotaExceededError | ProducerBlockedQuotaExceededException
            )


def _publish(producer: "pulsar_spark.Producer", contents: Iterable[Content], options: dict, rate: float) -> dict:
    answers, started, count = _Answers(), time.monotonic(), 0
    with _progress() as progress:
        task = progress.add_task("published", total=None)
        for content in contents:
            if answers.is_over_quota:
                break
            if rate:
                time.sleep(max(0.0, started + count / rate - time.monotonic()))
            producer.send_async(content.payload, cast(Callable, answers), partition_key=content.key, **options)
            count += 1
            progress.update(task, completed=count)
        producer.flush()
    if answers.error is not None:
        if count == 1:
            raise answers.error
        raise type(answers.error)(
            f"{count - answers.published} of {count} messages were not published: {answers.error.args[0]}"
        )
    return {"produced": answers.published, "lastMessageId": str(answers.last_id) if answers.last_id else None}


SubscriptionType = Annotated[str, typer.Option("--subscription-type", "-t", help=f"{', '.join(SUBSCRIPTION_TYPES)}.")]
ConsumerName = Annotated[
    str | None, typer.Option("--consumer-name", help="Name of the consumer; KeyShared assigns keys by it.")
]
StickyRanges = Annotated[
    str | None, typer.Option("--sticky-ranges", help="KeyShared: the hashes to receive, such as 0-9,20-65535.")
]
OutOfOrder = Annotated[
    bool, typer.Option("--allow-out-of-order-delivery", help="KeyShared: messages of a key need not be in order.")
]
Position = Annotated[str, typer.Option("--position", help="Where a new subscription starts: 'earliest' or 'latest'.")]


Count = Annotated[int, typer.Option("--num-messages", "-n", min=0, help="Messages to receive; 0 = until interrupted.")]
Acknowledge = Annotated[bool, typer.Option("--ack/--no-ack", help="Acknowledge received messages.")]
QuietSeconds = Annotated[
    float | None, typer.Option("--timeout", min=0, help="Stop after this many seconds without a message.")
]


def consume(
    topic: Topic,
    subscription: Subscription,
    root: Root,
    count: Count = 1,
    subscription_type: SubscriptionType = "Exclusive",
    consumer_name: ConsumerName = None,
    sticky_ranges: StickyRanges = None,
    out_of_order: OutOfOrder = False,
    position: Position = "latest",
    create: CreateTopic = False,
    ack: Acknowledge = True,
    timeout: QuietSeconds = None,
    output: Output = None,
    as_json: Json = False,
):
    """Receive messages and print their ids, keys, properties and sizes; with --json one line of JSON each.

    The topic must exist ('topics create' and 'produce' create it), unless --create is given.
    SIGTERM and Ctrl-C close the consumer. The exit code is then 143 or 130. With -n 0 or after all messages it is 0.
    """
    consumer_type = _member(pulsar_spark.ConsumerType, "--subscription-type", subscription_type, SUBSCRIPTION_TYPES)
    options = {
        "consumer_type": consumer_type,
        "consumer_name": consumer_name,
        "key_shared_policy": _key_shared_policy(consumer_type, sticky_ranges, out_of_order),
        "initial_position": _member(pulsar_spark.InitialPosition, "--position", position),
        "receiver_queue_size": min(count, 1000) or 1000,
    }
    require_root(Layout(root))
    if not create:
        existing_topic(Layout(root), topic, "--create")
    received = size = 0
    with ExitStack() as stack:
        payloads = stack.enter_context(open_payloads(output))
        client = pulsar_spark.Client(service_url(root))
        client._timeout = _operation_seconds(Layout(root), topic, timeout, client._timeout)
        stack.callback(client.close)
        consumer = client.subscribe(topic, subscription, **options)
        with stopping_on_signals(lambda: None) as signals:
            for message in itertools.islice(receive(consumer.receive, timeout, signals), count or None):
                show_message(message, payloads, as_json, redeliveryCount=message.redelivery_count())
                if ack:
                    consumer.acknowledge(message)
                received, size = received + 1, size + len(message.data())
            consumer.close()
    but = "" if ack else ", none acknowledged"
    progress_console.print(f"{received} messages, {size} bytes of payload{but}", highlight=False)
    if signals and received < count:
        raise typer.Exit(exit_code(signals[0]))


def _operation_seconds(layout: Layout, topic: str, quiet: float | None, otherwise: float) -> float:
    """How long to wait for the broker; without one at most *quiet*."""
    if quiet is None or BundleLease(layout_of(layout, str(parse_topic_name(topic).partitioned_topic)), "").holder():
        return otherwise
    return min(quiet, otherwise)


def _key_shared_policy(
    consumer_type: "pulsar_spark.ConsumerType", sticky_ranges: str | None, out_of_order: bool
) -> "pulsar_spark.ConsumerKeySharedPolicy | None":
    if consumer_type is not pulsar_spark.ConsumerType.KeyShared:
        if sticky_ranges is not None or out_of_order:
            raise InvalidConfiguration(
                "--sticky-ranges and --allow-out-of-order-delivery go with --subscription-type KeyShared"
            )
        return None
    if sticky_ranges is None:
        return pulsar_spark.ConsumerKeySharedPolicy(allow_out_of_order_delivery=out_of_order)
    try:
        return pulsar_spark.ConsumerKeySharedPolicy(
            pulsar_spark.KeySharedMode.Sticky, out_of_order, list(hash_ranges_of(sticky_ranges))
        )
    except ValueError as wrong:
        raise InvalidConfiguration(f"--sticky-ranges {sticky_ranges!r}: {wrong}") from None


def receive(
    call: Callable[..., "pulsar_spark.Message"], timeout: float | None, signals: list[int]
) -> Iterator["pulsar_spark.Message"]:
    """Messages from *call*, which takes ``timeout_millis``, until a signal or *timeout* seconds of silence. Unreadable
    ones are reported and stay unacknowledged."""
    quiet_since = time.monotonic()
    while not signals:
        left = LOOK_SECONDS if timeout is None else min(LOOK_SECONDS, timeout - (time.monotonic() - quiet_since))
        try:
            yield call(timeout_millis=max(1, int(left * 1000)))
            quiet_since = time.monotonic()
        except UnreadableMessage as error:
            progress_console.print(str(error), highlight=False, markup=False, soft_wrap=True)
        except Timeout:
            if timeout is not None and time.monotonic() - quiet_since >= timeout:
                return


def _member(enum: type[Any], option: str, text: str, offered: Iterable[str] = ()) -> Any:
    for member in enum:
        if member.name.lower() == text.replace("_", "").lower():
            return member
    raise InvalidConfiguration(
        f"{option} {text!r}: give one of {', '.join(offered or (member.name for member in enum))}"
    )


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed}"),
        TimeElapsedColumn(),
        console=progress_console,
        transient=True,
        disable=not progress_console.is_terminal,
    )
