"""``pulsar-spark dlq waiting``, ``retry-waiting`` and ``drop-waiting``, without Spark."""

from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, TimeoutSeconds, admin, print_done, print_each

OfTopic = Annotated[str | None, typer.Argument(help="Only letters of messages of this topic.")]
OfSubscription = Annotated[
    str | None, typer.Option("--subscription", "-s", help="Only letters of messages that died on this subscription.")
]
OneLetter = Annotated[str | None, typer.Option("--letter", "-l", help="Only this letter, as 'dlq waiting' names it.")]


def waiting(root: Root, topic: OfTopic = None, subscription: OfSubscription = None, as_json: Json = False):
    """Show letters that could not be written so far, and why; with --json one line of JSON each."""
    print_each(
        admin(root).waiting_letters(topic, subscription),
        as_json,
        ["letter", "topic", "subscription", "messages", "for", "why", "tries", "since", "next try"],
        lambda each: (
            *(each[name] for name in ("letter", "topic", "subscription", "messages", "letterTopic")),
            f"{each['error']}: {each['text']}" if each["error"] else "",
            each["tries"],
            each["since"],
            each["nextTry"] or "now",
        ),
        none="none",
    )


def retry_waiting(
    root: Root,
    topic: OfTopic = None,
    subscription: OfSubscription = None,
    letter: OneLetter = None,
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Try to write the waiting letters now."""
    messages = admin(root, timeout).retry_waiting_letters(topic, subscription, letter=letter)
    print_done(as_json, f"tried again: letters of {messages} messages", messages=messages)


def drop_waiting(
    root: Root,
    topic: OfTopic = None,
    subscription: OfSubscription = None,
    letter: OneLetter = None,
    drop_all: Annotated[bool, typer.Option("--all", help="All waiting letters of all topics.")] = False,
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Drop waiting letters: their messages get no letter."""
    messages = admin(root, timeout).drop_waiting_letters(topic, subscription, letter=letter, drop_all=drop_all)
    print_done(as_json, f"dropped: letters of {messages} messages", messages=messages)
