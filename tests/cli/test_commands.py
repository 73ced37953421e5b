"""All commands, looked at as a whole: what reads has --json, what a message names exists, and none is slow to say how
it is used."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from pulsar_spark.cli import app

PACKAGE = Path(__file__).parents[2] / "pulsar_spark"
ONLY_DO = {
    "topics create",
    "topics delete",
    "topics unload",
    "topics update",
    "subscriptions create",
    "subscriptions delete",
    "subscriptions skip",
    "subscriptions clear-backlog",
    "subscriptions expire",
    "subscriptions seek",
    "namespaces create",
    "namespaces set-delayed-delivery",
    "namespaces remove-delayed-delivery",
    "namespaces set-deduplication",
    "namespaces remove-deduplication",
    "namespaces set-compaction-threshold",
    "namespaces remove-compaction-threshold",
    "topics set-delayed-delivery",
    "topics remove-delayed-delivery",
    "topics set-deduplication",
    "topics remove-deduplication",
    "topics set-compaction-threshold",
    "topics remove-compaction-threshold",
    "policies set",
    "policies remove",
    "durability set",
    "set-aside retry",
    "set-aside drop",
    "broker",
    "demo",
}
"""Commands that answer with no more than a line: the others show something."""


def commands(group=None, names: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Every command with its full name."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield " ".join((*names, name)), command


@pytest.mark.parametrize("name, command", [pytest.param(*found, id=found[0]) for found in commands()])
def test_what_reads_has_json(name, command):
    options = {option for parameter in command.params for option in parameter.opts}
    assert name in ONLY_DO or "--json" in options
    assert command.help, "it says what it does"


def test_a_command_that_a_message_names_exists():
    known = [name.split() for name, _ in commands()]
    for path in PACKAGE.rglob("*.py"):
        for first, second in re.findall(r"pulsar-spark ([a-z][a-z-]*)(?: ([a-z][a-z-]+))?", path.read_text()):
            if first in ("tests", "command"):
                continue
            of_group = [name[1] for name in known if name[0] == first and len(name) > 1]
            assert [first] in known or of_group, f"{path.name} names pulsar-spark {first}"
            assert not of_group or not second or second in of_group, f"{path.name} names pulsar-spark {first} {second}"
