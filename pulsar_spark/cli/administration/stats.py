"""``pulsar-spark stats``."""

import typer

from pulsar_spark.cli.common import Json, Root, Topic, admin, print_json, print_table, visible


def stats(topic: Topic, root: Root, as_json: Json = False):
    """Show backlog, unacknowledged messages and counters of a topic's subscriptions and consumers. A backlog
    (msgBacklog) counts a batch as one, as in Pulsar.
    """
    found = admin(root).stats(topic)
    if as_json:
        print_json(found)
        return
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
    _print_subscriptions(subscriptions)
    _print_consumers(subscriptions)
    _print_key_shared(subscriptions)


def _print_subscriptions(subscriptions: dict[str, dict]) -> None:
    print_table(
        [
            "subscription",
            "type",
            "backlog",
            "unacked",
            "oldest s",
            "delayed",
            "dead",
            "letters wait",
            "out",
            "redelivered",
            "acked",
            "out/s",
            "redelivered/s",
        ],
        [
            (
                name,
                sub["type"],
                sub["msgBacklog"],
                sub["unackedMessages"],
                _seconds(sub),
                sub["msgDelayed"],
                sub["deadLetters"],
                sub["waitingLetters"],
                sub["msgOutCounter"],
                sub["msgRedeliverCounter"],
                sub["ackedEntries"],
                f"{sub['msgRateOut']:.1f}",
                f"{sub['msgRateRedeliver']:.1f}",
            )
            for name, sub in subscriptions.items()
        ],
        none="no subscriptions",
    )


def _print_consumers(subscriptions: dict[str, dict]) -> None:
    consumers = [
        (
            name,
            consumer["consumerName"],
            consumer["availablePermits"],
            consumer["unackedMessages"],
            _seconds(consumer),
            consumer["msgOutCounter"],
            consumer["msgRedeliverCounter"],
            f"{consumer['msgRateOut']:.1f}",
            "yes" if consumer["blockedConsumerOnUnackedMsgs"] else "no",
        )
        for name, sub in subscriptions.items()
        for consumer in sub["consumers"]
    ]
    if consumers:
        print_table(
            ["subscription", "consumer", "permits", "unacked", "oldest s", "out", "redelivered", "out/s", "blocked"],
            consumers,
        )


def _print_key_shared(subscriptions: dict[str, dict]) -> None:
    """Print the facts of Key_Shared subscriptions."""
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


def _seconds(stats: dict) -> str:
    """For how long the oldest delivery is unacknowledged."""
    return "" if stats["oldestUnackedSeconds"] is None else f"{stats['oldestUnackedSeconds']:.0f}"
