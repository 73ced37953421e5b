"""``pulsar-spark dlq waiting``, ``retry-waiting`` and ``drop-waiting``: letters that could not be written yet, without
Spark.
"""

from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, TimeoutSeconds, admin, print_json, print_table

OfTopic = Annotated[str | None, typer.Argument(help="Only letters of messages of this topic.")]
OfSubscription = Annotated[
    str | None, typer.Option("--subscription", "-s", help="Only letters of messages that died on this subscription.")
]
OneLetter = Annotated[str | None, typer.Option("--letter", "-l", help="Only this letter, as 'dlq waiting' names it.")]


def waiting(root: Root, topic: OfTopic = None, subscription: OfSubscription = None, as_json: Json = False):
    """Show letters that could not be written so far, and why; with --json one line of JSON each."""
    found = admin(root).waiting_letters(topic, subscription)
    if as_json:
        for letter in found:
            print_json(letter)
        return
    print_table(
        ["letter", "topic", "subscription", "messages", "for", "why", "tries", "since", "next try"],
        [
            (
                each["letter"],
                each["topic"],
                each["subscription"],
                each["messages"],
                each["letterTopic"],
                f"{each['error']}: {each['text']}" if each["error"] else "",
                each["tries"],
                each["since"],
                each["nextTry"] or "now",
            )
            for each in found
        ],
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
    _done("tried again", admin(root, timeout).retry_waiting_letters(topic, subscription, letter=letter), as_json)


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
    _done(
        "dropped",
        admin(root, timeout).drop_waiting_letters(topic, subscription, letter=letter, drop_all=drop_all),
        as_json,
    )


def _done(what: str, messages: int, as_json: bool) -> None:
    if as_json:
        print_json({"messages": messages})
    else:
        typer.echo(f"{what}: letters of {messages} messages")
