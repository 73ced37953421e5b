"""``pulsar-spark stats``."""

from typing import Annotated, Any

import typer

from pulsar_spark.cli.common import TOPIC_ARGUMENT, Json, Root, admin, print_json, print_table, visible


def stats(root: Root, topic: Annotated[str | None, TOPIC_ARGUMENT] = None, as_json: Json = False):
    """Show backlog, unacknowledged messages and counters of a topic's subscriptions and consumers; without a topic,
    those of all subscriptions of the root, a line each, the worst backlog first. A backlog counts a batch as one, as in
    Pulsar."""
    if topic is None:
        from pulsar_spark.cli.monitor.root_stats import print_root

        return print_root(root, as_json)
    found = admin(root).stats(topic)
    if as_json:
        return print_json(found)
    typer.echo(
        f"{visible(topic)}: {found['msgInCounter']} messages, {found['msgRateIn']:.1f} a second, "
        f"{found['storageSize']} bytes, partitions: {len(found.get('partitions', ())) or 'none'}"
    )
    for name, text in (
        ("error", "{}"),
        ("foreignMessages", "{} rows are not valid messages: 'pulsar-spark topics mend' removes them"),
        ("deletedMessages", "{} messages were deleted"),
        ("lostMessages", "{} messages are lost: see 'pulsar-spark topics lost'"),
    ):
        if name in found:
            typer.echo(text.format(found[name]))
    subscriptions = found["subscriptions"]
    rows = [(name, *_cells(sub, _OF_SUBSCRIPTION)) for name, sub in subscriptions.items()]
    print_table(["subscription", *_OF_SUBSCRIPTION], rows, none="no subscriptions")
    _print_consumers(subscriptions)
    _print_key_shared(subscriptions)


_OF_SUBSCRIPTION = {
    "type": "type",
    "backlog": "msgBacklog",
    "unacked": "unackedMessages",
    "oldest s": "oldestUnackedSeconds",
    "delayed": "msgDelayed",
    "dead": "deadLetters",
    "letters wait": "waitingLetters",
    "out": "msgOutCounter",
    "redelivered": "msgRedeliverCounter",
    "acked": "ackedEntries",
    "out/s": "msgRateOut",
    "redelivered/s": "msgRateRedeliver",
}
"""Headings of the table, and the field that each shows."""
_OF_CONSUMER = {
    "consumer": "consumerName",
    "permits": "availablePermits",
    "unacked": "unackedMessages",
    "oldest s": "oldestUnackedSeconds",
    "out": "msgOutCounter",
    "redelivered": "msgRedeliverCounter",
    "out/s": "msgRateOut",
    "blocked": "blockedConsumerOnUnackedMsgs",
}


def _print_consumers(subscriptions: dict[str, dict]) -> None:
    consumers = [
        (name, *_cells(consumer, _OF_CONSUMER)) for name, sub in subscriptions.items() for consumer in sub["consumers"]
    ]
    if consumers:
        print_table(["subscription", *_OF_CONSUMER], consumers)


def _cells(stats: dict, columns: dict[str, str]) -> list[Any]:
    return [_shown(name, stats[key]) for name, key in columns.items()]


def _shown(name: str, value: Any) -> Any:
    if name == "oldest s":
        return "" if value is None else f"{value:.0f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.1f}" if name.endswith("/s") else value


def _print_key_shared(subscriptions: dict[str, dict]) -> None:
    key_shared = [
        (
            name,
            sub["keySharedMode"],
            "yes" if sub["allowOutOfOrderDelivery"] else "no",
            sub["drainingHashesCount"],
            sub["drainingHashesUnackedMessages"],
            sub["waitingHashesCount"],
        )
        for name, sub in subscriptions.items()
        if "keySharedMode" in sub
    ]
    if key_shared:
        print_table(
            ["subscription", "mode", "out of order", "draining hashes", "unacked of them", "waiting hashes"], key_shared
        )
