"""README's examples, as they stand there: the commands are ones that the command line knows, and the Python is of
functions that exist, with arguments they take."""

import ast
import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from pulsar_spark.cli import app

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line
    for language, block in BLOCKS
    if language == "bash"
    for line in block.splitlines()
    if line.startswith("pulsar-spark ")
]
NAMED = sorted(set(re.findall(r"`pulsar-spark ([a-z][a-z -]+?)(?: [A-Z-].*?)?`", README)))
PROGRAMS = [block for language, block in BLOCKS if language == "python"]


def command_of(words: list[str]) -> tuple:
    """The command that the words name, and what is left of them."""
    command = typer.main.get_command(app)
    while isinstance(command, TyperGroup) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_known_with_its_options(line, monkeypatch, tmp_path):
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").touch()
    words = shlex.split(line, comments=True)[1:]
    command, rest = command_of([word for word in words if word != "&"])
    assert command is not typer.main.get_command(app)
    if rest or not isinstance(command, TyperGroup):
        command.make_context(line, rest)


@pytest.mark.parametrize("words", NAMED)
def test_a_command_that_is_named_in_a_sentence_is_known(words):
    command, rest = command_of(words.split())
    assert not isinstance(command, TyperGroup) or (command.name and not rest)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_imports_and_calls_what_there_is(program):
    tree, names = ast.parse(program), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {each.asname or each.name: getattr(import_module(node.module), each.name) for each in node.names}
        elif isinstance(node, ast.Import):
            names |= {each.asname or each.name: import_module(each.name) for each in node.names}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert [ast.unparse(call) for call in calls if not _fits(call, _named(call.func, names))] == []


def _fits(call: ast.Call, called) -> bool:
    """Does what is called take these arguments? What is not known takes any."""
    if called is None:
        return True
    try:
        inspect.signature(called).bind(*[None] * len(call.args), **{each.arg: None for each in call.keywords})
    except TypeError:
        return False
    return True


def _named(node: ast.expr, names: dict):
    """What is called, where it is imported or an attribute of what is; AttributeError where there is no such."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _named(node.value, names)) is not None:
        return getattr(owner, node.attr)
    return None
