"""``pulsar-spark topics ...``."""

import sys
from typing import Annotated

import typer

from pulsar_spark.cli.administration.stats import stats
from pulsar_spark.cli.common import (
    AWAITS_BROKER,
    TOPIC_ARGUMENT,
    DryRun,
    Force,
    Json,
    Root,
    TimeoutSeconds,
    Topic,
    Yes,
    admin,
    note_missing,
    print_done,
    print_found,
    print_json,
    print_listed,
    print_table,
    shows_work,
    visible,
)
from pulsar_spark.cli.messages.shown import Output, parse_place, show_all
from pulsar_spark.cli.policies import compaction, delayed_delivery, policies, policy_verbs
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.layout import Layout

app = typer.Typer(no_args_is_help=True)
_NAMED = 5
"""Subscriptions in a question."""


@app.command()
def create(
    topic: Topic,
    root: Root,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=0, help="0 = a topic without partitions.")] = 0,
    as_json: Json = False,
):
    """Create a topic. A missing namespace is created too, with a notice."""
    layout, name = Layout(root), parse_topic_name(topic)
    is_there = layout.has_namespace(name.tenant, name.namespace)
    if partitions:
        admin(root).create_partitioned_topic(topic, partitions)
    else:
        admin(root).create_topic(topic)
    new = "" if is_there else f" in the new namespace {name.tenant}/{name.namespace}"
    print_done(as_json, f"created {topic}{new}", topic=str(name), partitions=partitions, isNewNamespace=not is_there)


@app.command()
def update(
    topic: Topic,
    root: Root,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="The new number, larger than now.")],
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Add partitions to a topic; its subscriptions read the new ones from the first message."""
    admin(root, timeout).update_partitioned_topic(topic, partitions)
    print_done(as_json, f"{topic} has {partitions} partitions", topic=topic, partitions=partitions)


@app.command("list")
def list_(
    root: Root,
    namespace: Annotated[str | None, typer.Argument(help="'tenant/namespace'; by default all of the root.")] = None,
    as_json: Json = False,
):
    """List the topics of a namespace, or of the root."""
    found = admin(root).list_topics(namespace)
    note_missing(root, namespace)
    print_listed(found, as_json, ["topic", "partitions"], [(topic["topic"], topic["partitions"]) for topic in found])


@app.command()
def describe(topic: Topic, root: Root, as_json: Json = False):
    """Show a topic's properties and size."""
    found = admin(root).describe(topic)
    if as_json:
        print_json(found)
    else:
        messages = sum(found.pop("messages").values())
        subscriptions = ", ".join(found.pop("subscriptions"))
        print_table(["", "value"], [*found.items(), ("messages", messages), ("subscriptions", subscriptions)])


@app.command()
def partitions(topic: Topic, root: Root, as_json: Json = False):
    """Show the number of messages in each partition of a topic; a topic without partitions has one row, -1."""
    messages = admin(root).describe(topic)["messages"]
    found = [{"partition": partition, "messages": count} for partition, count in messages.items()]
    print_listed(found, as_json, ["partition", "messages"], messages.items())


@app.command()
def delete(topic: Topic, root: Root, force: Force = False, yes: Yes = False, as_json: Json = False):
    """Delete a topic with its messages and subscriptions. If it has subscriptions the command asks first, or needs
    --yes."""
    if not yes:
        _confirm(topic, admin(root).describe(topic), "delete")
    admin(root).delete_topic(topic, force)
    print_done(as_json, f"deleted {topic}", topic=topic, deleted=True)


def _confirm(topic: str, found: dict, verb: str) -> None:
    """Refused without a terminal."""
    messages, subscriptions = sum(found["messages"].values()), found["subscriptions"]
    if not subscriptions and (verb == "delete" or not messages):
        return
    lost = f"{messages} message{'s' * (messages != 1)}"
    if verb == "delete":
        named = ", ".join(subscriptions[:_NAMED]) + (", ..." if len(subscriptions) > _NAMED else "")
        lost += f" and {len(subscriptions)} subscription{'s' * (len(subscriptions) != 1)} ({named})"
    if not sys.stdin.isatty():
        raise NotAllowedError(f"topic {topic!r} has {lost}, which would be lost: give --yes to {verb} it")
    typer.confirm(f"{topic} has {visible(lost)}, which will be lost. {verb.capitalize()} it?", abort=True, err=True)


app.command("stats")(stats)


@app.command("last-message-id")
def last_message_id(topic: Topic, root: Root, as_json: Json = False):
    """Show the id of the last message of a topic or a partition."""
    found = admin(root).last_message_id(topic)
    last = None if found == MessageId.earliest else str(found)
    print_done(as_json, last or "no messages", topic=topic, lastMessageId=last)


@app.command()
@shows_work(AWAITS_BROKER)
def truncate(topic: Topic, root: Root, yes: Yes = False, timeout: TimeoutSeconds = 30, as_json: Json = False):
    """Acknowledge all messages of a topic on all subscriptions, and remove them. Messages of the newest publish commit
    stay, as those of the open ledger do in Pulsar. If the topic has messages the command asks first, or needs --yes."""
    if not yes:
        _confirm(topic, admin(root).describe(topic), "truncate")
    found = admin(root, timeout).truncate(topic)
    rows = [(each["topic"], each["first_position"], each["files"], each["bytes"]) for each in found]
    print_listed(found, as_json, ["topic", "first position left", "files removed", "bytes"], rows)


@app.command()
def lookup(topic: Topic, root: Root, as_json: Json = False):
    """Show which bundle has a topic, and which broker serves it."""
    found = admin(root).lookup(topic)
    serves = f"{found['broker']} (process {found['pid']} on {found['host']})" if found["broker"] else "no broker"
    print_found(found, as_json, f"{found['topic']}: bundle {found['bundle']}, served by {serves}")


@app.command("get-message-by-id")
def get_message_by_id(
    topic: Topic,
    place: Annotated[str, typer.Argument(help="ledger:entry:partition, or a position.")],
    root: Root,
    output: Output = None,
    as_json: Json = False,
):
    """Show a message, acknowledged or not; a batch is shown whole. With --json one line of JSON each."""
    show_all(admin(root).get_messages_at(topic, parse_place(place)), output, as_json)


@app.command()
@shows_work(AWAITS_BROKER)
def unload(topic: Topic, root: Root, timeout: TimeoutSeconds = 30, as_json: Json = False):
    """Disconnect all consumers of a topic. They subscribe again, and their unacknowledged messages are redelivered."""
    admin(root, timeout).unload(topic)
    print_done(as_json, f"unloaded {topic}", topic=topic, unloaded=True)


@app.command()
def mend(topic: Topic, root: Root, dry_run: DryRun = False, as_json: Json = False):
    """Repair a stopped topic: set the unreadable commit aside, and remove rows that are not a valid publish."""
    found = admin(root).mend(topic, dry_run)
    if as_json:
        print_json(found)
    elif found:
        print_table(
            ["commit", "what", "rows", "text"],
            [(each["version"], each["what"], each["rows"], each["text"]) for each in found],
            "would be mended" if dry_run else "mended",
        )
    else:
        typer.echo(f"nothing stops {topic}")


@app.command()
def lost(topic: Topic, root: Root, as_json: Json = False):
    """List the messages whose file is missing or damaged; 'subscriptions skip-lost' acknowledges them."""
    found = admin(root).lost_messages(topic)
    rows = [
        (
            each["partition"],
            f"{each['first_position']} to {each['last_position']}",
            f"{each['ledger_id']}:{each['first_entry_id']} to {each['ledger_id']}:{each['last_entry_id']}",
            each["messages"],
            each["path"],
        )
        for each in found
    ]
    print_listed(found, as_json, ["partition", "positions", "entries", "messages", "file"], rows)


delayed_delivery.add_commands(app, TOPIC_ARGUMENT, delayed_delivery.full_name)
policies.add_deduplication(app, TOPIC_ARGUMENT, delayed_delivery.full_name)
compaction.add_commands(app, TOPIC_ARGUMENT, delayed_delivery.full_name)
policy_verbs.add_policy_verbs(app, TOPIC_ARGUMENT, delayed_delivery.full_name)
app.command("compact")(compaction.compact)
app.command("compaction-status")(compaction.compaction_status)
