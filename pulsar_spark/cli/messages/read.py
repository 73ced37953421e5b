"""``pulsar-spark read``."""

import itertools
from typing import Annotated

import typer

import pulsar_spark
from pulsar_spark.cli.common import Json, Root, Topic, progress_console, service_url
from pulsar_spark.cli.messages.messages import Count, QuietSeconds, receive
from pulsar_spark.cli.messages.shown import Output, open_payloads, show_message
from pulsar_spark.cli.signals import exit_code, stopping_on_signals
from pulsar_spark.link.requester import require_root
from pulsar_spark.protocol.topics.message_id import MessageId, parse_message_id
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import resolve_topic

_ENDS = {"earliest": MessageId.earliest, "latest": MessageId.latest}


def read(
    topic: Topic,
    root: Root,
    start: Annotated[
        str,
        typer.Option(
            "--start-message-id", "-m", help="Read after this: 'earliest', 'latest', or ledger:entry:partition."
        ),
    ] = "latest",
    inclusive: Annotated[
        bool, typer.Option("--start-message-id-inclusive", "-i", help="Begin with the start message itself.")
    ] = False,
    count: Count = 1,
    timeout: QuietSeconds = None,
    output: Output = None,
    as_json: Json = False,
):
    """Read messages of a topic, from a position on and without a subscription; print ids, keys, properties and sizes.
    With --json one line of JSON each. Needs no broker. SIGTERM and Ctrl-C end it with exit code 143 or 130,
    with -n 0 with exit code 0."""
    first = _ENDS.get(start) or parse_message_id(start)
    require_root(Layout(root))
    resolve_topic(Layout(root), topic)
    client, found = pulsar_spark.Client(service_url(root)), 0
    try:
        reader = client.create_reader(topic, first, start_message_id_inclusive=inclusive)
        with open_payloads(output) as payloads, stopping_on_signals(lambda: None) as signals:
            for message in itertools.islice(receive(reader.read_next, timeout, signals), count or None):
                show_message(message, payloads, as_json)
                found += 1
    finally:
        client.close()
    progress_console.print(f"{found} messages", highlight=False)
    if signals and found < count:
        raise typer.Exit(exit_code(signals[0]))
