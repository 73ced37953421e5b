"""All commands, looked at as a whole: each has --json, what a message names exists, and none is slow to say how
it is used."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from pulsar_spark.cli import app

PACKAGE = Path(__file__).parents[2] / "pulsar_spark"


def commands(group=None, names: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Every command with its full name."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield " ".join((*names, name)), command


@pytest.mark.parametrize("name, command", [pytest.param(*found, id=found[0]) for found in commands()])
def test_every_command_has_json_and_options_of_logging(name, command):
    options = {option for parameter in command.params for option in parameter.opts}
    assert options >= {"--json", "--log-level", "--log-format"}
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
