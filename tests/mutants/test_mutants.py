"""Every stated way to break the product can still be tried: its text is where it was, and the tests named are there."""

import ast
from functools import cache

import pytest

from tests.mutants.mutant import PROJECT
from tests.mutants.report import Judged, row, written
from tests.mutants.table import MUTANTS
from tests.support.costs import Cost, function_of, read_costs
from tests.support.suites import MOST_SECONDS, ON_SPARK


@cache
def _test_names(file: str) -> set[str]:
    tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _problems(mutant) -> list[str]:
    try:
        compile(mutant.mutated(mutant.path().read_text(encoding="utf-8")), mutant.file, "exec")
    except (OSError, ValueError, SyntaxError) as problem:
        return [str(problem)]
    places = [test.partition("::")[::2] for test in mutant.tests.split()]
    missing = [file for file, _ in places if not (PROJECT / file).exists()]
    names = [(file, name.split("::")[-1].split(".")[-1]) for file, name in places if name and file not in missing]
    missing += [name for file, name in names if name not in _test_names(file)]
    return [f"{mutant.name}: there is no {name}" for name in missing]


@pytest.mark.default
def test_each_mutant_applies_and_names_tests_that_are_there():
    assert [problem for mutant in MUTANTS for problem in _problems(mutant)] == []
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 66


def test_the_default_suite_sees_each_mutant():
    costs = read_costs()
    unseen = [mutant.name for mutant in MUTANTS if not any(_is_default(test, costs) for test in mutant.tests.split())]
    assert unseen == [], "mark one of its tests 'default', or make it cheaper"


def _is_default(test: str, costs: dict[str, Cost]) -> bool:
    """Whether the function of a test is cheap, or marked as one of the default suite."""
    file, _, name = function_of(test).partition("::")
    if test.startswith(ON_SPARK) or function_of(test) not in costs or costs[function_of(test)].seconds <= MOST_SECONDS:
        return True
    tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    return any(ast.unparse(mark) == "pytest.mark.default" for each in functions for mark in each.decorator_list)


def test_a_table_takes_the_place_of_the_one_before():
    killed = Judged(MUTANTS[0], "tests/storage/test_a.py::test_b[fsync]", None, 1.0, True)
    page = "begins\n<!-- mutants -->\nold\n<!-- end of mutants -->\nends\n"
    assert written(page, [killed]).splitlines() == [
        "begins",
        "<!-- mutants -->",
        "| what is broken | the test that sees it | suite |",
        "|---|---|---|",
        f"| {MUTANTS[0].broken} | `storage/test_a.py::test_b` | default |",
        "<!-- end of mutants -->",
        "ends",
    ]
    assert row(killed._replace(killed=None, is_default=False)).endswith("| `none` | everything |")
