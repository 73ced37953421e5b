"""A page that names a command, an option, a function or an argument which does not exist is seen here."""

import ast
import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path

import typer
from typer.core import TyperGroup

from pulsar_spark.cli import app
from pulsar_spark.protocol.policies.policies import POLICIES
from tests.docs.pages import PAGES, name_of
from tests.support.judging import failures

BY_HAND = [page for page in PAGES if "reference" not in page.parts]


def command_of(words: list[str]) -> tuple:
    """The command that the words name, and what is left of them."""
    command = typer.main.get_command(app)
    while isinstance(command, TyperGroup) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_commands_in_blocks_are_known_with_their_options(monkeypatch, tmp_path):
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert failures(_has_commands_that_are_known, BY_HAND, name_of) == {}


def _has_commands_that_are_known(page: Path) -> None:
    blocks = re.findall(r"```(?:bash|text)\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("pulsar-spark ")]
    for line in lines:
        words = [word for word in shlex.split(line.partition(" & ")[0], comments=True)[1:] if word != "&"]
        words = words[: words.index(">")] if ">" in words else words
        command, rest = command_of(words)
        assert command is not typer.main.get_command(app), line
        assert not isinstance(command, TyperGroup) or not rest or rest[0].startswith("-"), line  # no such subcommand
        if rest or not isinstance(command, TyperGroup):
            try:
                command.make_context(line, rest)
            except typer.Exit:
                continue
            except Exception as error:
                raise AssertionError(f"{line}: {error}") from error


def test_the_page_of_policies_has_each_once():
    page = next(page for page in PAGES if page.name == "policies.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)`", page, flags=re.MULTILINE)) == sorted(POLICIES)


def test_the_page_of_python_has_what_users_call():
    """Also methods that a class has from its bases."""
    page = next(page for page in PAGES if page.name == "python.md").read_text(encoding="utf-8")
    rows = ["subscribe", "create_producer", "send", "acknowledge", "receive", "peek_messages", "stats", "start"]
    missing = [name for name in rows if f"| `{name}(" not in page]
    headings = ["Admin", "Broker", "publish", "consume", "spark_session", "backlog", "message_history", "create_views"]
    assert missing + [name for name in headings if f"\n### {name}\n" not in page] == []


def test_commands_in_sentences_are_known():
    assert failures(_names_commands_that_are_known, BY_HAND, name_of) == {}


def _names_commands_that_are_known(page: Path) -> None:
    for words in re.findall(r"`pulsar-spark ([a-z][a-z -]+?)(?: [A-Z-].*?)?`", page.read_text(encoding="utf-8")):
        command, rest = command_of(words.split())
        assert not isinstance(command, TyperGroup) or (command.name and not rest), words


def test_programs_import_and_call_what_there_is():
    assert failures(_has_programs_that_fit, BY_HAND, name_of) == {}


def _has_programs_that_fit(page: Path) -> None:
    objects = {}  # by name: the class of what earlier programs of the page made
    text = page.read_text(encoding="utf-8")
    own = re.findall(r"```python\n# (\w+)\.py\n", text)  # modules that the page shows
    for program in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        tree, names = ast.parse(program), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module not in own:
                names |= {each.asname or each.name: _imported(node.module, each.name) for each in node.names}
            elif isinstance(node, ast.Import):
                names |= {each.asname or each.name: import_module(each.name) for each in node.names}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = _named(node.value.func, names)
                objects |= {each.id: made for each in node.targets if isinstance(each, ast.Name)}
        odd = [ast.unparse(call) for call in calls if not _fits(call, _named(call.func, names))]
        odd += [ast.unparse(call) for call in calls if _is_no_method(call.func, objects)]
        assert odd == [], odd


def _imported(module: str, name: str):
    """What ``from module import name`` gives: an attribute, else a submodule."""
    found = import_module(module)
    return getattr(found, name) if hasattr(found, name) else import_module(f"{module}.{name}")


def _is_no_method(called: ast.expr, objects: dict) -> bool:
    """Is this a method that the class of a named object lacks?"""
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
        return False
    made = objects.get(called.value.id)
    return inspect.isclass(made) and not hasattr(made, called.attr)


def _fits(call: ast.Call, called) -> bool:
    """Does what is called take these arguments? What is not known takes any."""
    if called is None:
        return True
    try:
        inspect.signature(called).bind(*[None] * len(call.args), **{each.arg: None for each in call.keywords})
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    return True


def _named(node: ast.expr, names: dict):
    """What is called, where it is imported or an attribute of what is; AttributeError where there is no such."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _named(node.value, names)) is not None:
        return getattr(owner, node.attr)
    return None
