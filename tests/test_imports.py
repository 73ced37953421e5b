"""What an import brings along: a program that looks at names, and a command's ``--help``, start at once."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pulsar_spark
from pulsar_spark.cli.main import COMMANDS, app

PACKAGE = Path(pulsar_spark.__file__).parent
SPARK = {"delta", "py4j", "pyspark"}
ARROW = {"deltalake", "numpy", "obstore", "pyarrow"}
FOR_DATASETS = {"pandas", "pyarrow.dataset"}
EXTRAS = {"cryptography", "fastavro", "matplotlib"}
CLIENTS = "pulsar_spark.client.client"
"""The client itself, which a command's help needs no more than Arrow."""


@pytest.mark.parametrize(
    "program, absent",
    [
        ("import pulsar_spark", SPARK | ARROW | FOR_DATASETS | EXTRAS | {CLIENTS, "rich", "typer"}),
        ("import pulsar_spark; pulsar_spark.Client", SPARK | FOR_DATASETS | EXTRAS | {"rich", "typer"}),
        ("from pulsar_spark import *", SPARK | FOR_DATASETS | EXTRAS | {"rich", "typer"}),
        ("import pulsar_spark.asyncio", SPARK | FOR_DATASETS | EXTRAS | {"rich", "typer"}),
        ("import pulsar_spark.admin", SPARK | FOR_DATASETS | EXTRAS | {"rich", "typer"}),
        ("from pulsar_spark.cli import main; main()", SPARK | ARROW | FOR_DATASETS | EXTRAS | {CLIENTS}),
        ("import sys; sys.argv += ['broker']; from pulsar_spark.cli import main; main()", SPARK | FOR_DATASETS),
        ("import sys; sys.argv += ['produce']; from pulsar_spark.cli import main; main()", SPARK | FOR_DATASETS),
        ("import sys; sys.argv += ['stats']; from pulsar_spark.cli import main; main()", SPARK | ARROW | {CLIENTS}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(program, absent):
    watched = (
        "import atexit, sys\n"
        f"absent = {sorted(absent)}\n"
        "atexit.register(lambda: print('imported:', [name for name in absent if name in sys.modules]))\n"
        "sys.argv = ['pulsar-spark', '--help']\n"
        f"{program}\n"
    ).replace("sys.argv += [", "sys.argv[1:1] = [")
    done = subprocess.run(
        [sys.executable, "-c", watched], cwd=PACKAGE.parent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []", done.stdout


def test_all_names_are_there_are_listed_and_are_known_to_type_checkers():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (for_checkers,) = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    named = {
        (alias.name, (node.module or "").removeprefix("pulsar_spark").lstrip("."))
        for node in for_checkers.body
        for alias in node.names
    }
    at_run_time = {(name, home) for name, home in pulsar_spark._HOMES.items()}
    assert named == at_run_time | {(module, "") for module in pulsar_spark._MODULES}
    assert {*pulsar_spark.__all__} <= {*dir(pulsar_spark)} and len({*pulsar_spark.__all__}) == len(pulsar_spark.__all__)
    for name in (*pulsar_spark.__all__, *pulsar_spark._MODULES):
        assert getattr(pulsar_spark, name) is getattr(pulsar_spark, name)
    public = {name for name, value in inspect.getmembers(pulsar_spark, inspect.isclass) if not name.startswith("_")}
    assert public == {name for name in pulsar_spark.__all__ if inspect.isclass(getattr(pulsar_spark, name))}


def test_a_name_that_is_none_says_so():
    with pytest.raises(AttributeError, match="'pulsar_spark' has no attribute 'Clientt'"):
        pulsar_spark.Clientt  # noqa: B018
    with pytest.raises(ImportError, match="Clientt"):
        exec("from pulsar_spark import Clientt")


def test_each_command_has_a_line_that_fits_a_screen():
    import typer

    built = typer.main.get_command(app).commands
    assert [*built] == [*COMMANDS]
    for name, entry in COMMANDS.items():
        assert built[name] is built[name] and built[name].name == name and built[name].help
        assert entry.summary.endswith(".") and len(f"  subscriptions  {entry.summary}") <= 79, name
