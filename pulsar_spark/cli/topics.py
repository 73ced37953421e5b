"""``pulsar-spark topics ...``."""

from typing import Annotated

import typer

from pulsar_spark.cli import compaction, delayed_delivery, policies
from pulsar_spark.cli.common import (
    ASKS_BROKER,
    Json,
    Root,
    TimeoutSeconds,
    Topic,
    admin,
    print_json,
    print_listed,
    print_table,
    shows_work,
)
from pulsar_spark.cli.shown import Output, parse_place, show_all

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(
    topic: Topic,
    root: Root,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=0, help="0 = a topic without partitions.")] = 0,
):
    """Create a topic."""
    if partitions:
        admin(root).create_partitioned_topic(topic, partitions)
    else:
        admin(root).create_topic(topic)
    typer.echo(f"created {topic}")


@app.command()
def update(
    topic: Topic,
    root: Root,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="More than there are.")],
    timeout: TimeoutSeconds = 30,
):
    """Raise the number of a topic's partitions; its subscriptions get the new ones from the first message on."""
    admin(root, timeout).update_partitioned_topic(topic, partitions)
    typer.echo(f"{topic} has {partitions} partitions")


@app.command("list")
def list_(
    root: Root,
    namespace: Annotated[str | None, typer.Argument(help="'tenant/namespace'; all of the root without it.")] = None,
    as_json: Json = False,
):
    """List the topics of a namespace, or of the root."""
    found = admin(root).list_topics(namespace)
    print_listed(found, as_json, ["topic", "partitions"], [(topic["topic"], topic["partitions"]) for topic in found])


@app.command()
def describe(topic: Topic, root: Root, as_json: Json = False):
    """Show what a topic is and holds."""
    found = admin(root).describe(topic)
    if as_json:
        print_json(found)
    else:
        messages = sum(found.pop("messages").values())
        subscriptions = ", ".join(found.pop("subscriptions"))
        print_table(["", "value"], [*found.items(), ("messages", messages), ("subscriptions", subscriptions)])


@app.command()
def partitions(topic: Topic, root: Root, as_json: Json = False):
    """Show the partitions of a topic with the messages each holds; -1 is the topic itself, where it has none."""
    messages = admin(root).describe(topic)["messages"]
    if as_json:
        print_json([{"partition": partition, "messages": count} for partition, count in messages.items()])
    else:
        print_table(["partition", "messages"], list(messages.items()))


@app.command()
def delete(
    topic: Topic,
    root: Root,
    force: Annotated[bool, typer.Option("--force", help="Also while consumers are connected.")] = False,
):
    """Delete a topic with its messages and subscriptions."""
    admin(root).delete_topic(topic, force)
    typer.echo(f"deleted {topic}")


@app.command("get-message-by-id")
def get_message_by_id(
    topic: Topic,
    place: Annotated[str, typer.Argument(help="ledger:entry:partition, or a position.")],
    root: Root,
    output: Output = None,
    as_json: Json = False,
):
    """Show a message, acknowledged or not; of a batch all of it. With --json one line of JSON each."""
    show_all(admin(root).get_messages_at(topic, parse_place(place)), output, as_json)


@app.command()
@shows_work(ASKS_BROKER)
def unload(topic: Topic, root: Root, timeout: TimeoutSeconds = 30):
    """Let go of all consumers of a topic: they subscribe again, and get again what they have not acknowledged."""
    admin(root, timeout).unload(topic)
    typer.echo(f"unloaded {topic}")


@app.command()
def mend(
    topic: Topic,
    root: Root,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    as_json: Json = False,
):
    """Take out of the way what stops a topic, and remove rows that are no publish."""
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
    """List the messages whose file is gone or damaged; 'subscriptions skip-lost' acknowledges them."""
    found = admin(root).lost_messages(topic)
    if as_json:
        print_json(found)
    else:
        print_table(
            ["partition", "positions", "entries", "messages", "file"],
            [
                (
                    each["partition"],
                    f"{each['first_position']} to {each['last_position']}",
                    f"{each['ledger_id']}:{each['first_entry_id']} to {each['ledger_id']}:{each['last_entry_id']}",
                    each["messages"],
                    each["path"],
                )
                for each in found
            ],
        )


delayed_delivery.add_commands(app, Topic, delayed_delivery.full_name)
policies.add_deduplication(app, Topic, delayed_delivery.full_name)
compaction.add_commands(app, Topic, delayed_delivery.full_name)
app.command("compact")(compaction.compact)
app.command("compaction-status")(compaction.compaction_status)
