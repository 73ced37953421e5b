"""A case that no suite runs, a dear one in the default suite, or a line of costs whose test is gone is seen here."""

import ast
from pathlib import Path

import pytest

from tests.support.costs import function_of, read_costs

REPOSITORY = Path(__file__).parents[1]
MOST_SECONDS = 3.0
DEAR = {
    "tests/broker/test_split_crashes.py::test_without_power_after_any_sync": "a split without power at each sync",
    "tests/docs/test_blocks.py::test_the_code_of_a_page_runs": "what a reader tries first runs as it stands",
    "tests/docs/test_site.py::test_the_site_is_built_without_a_warning": "builds all pages once",
}
"""Cases of the default suite that may take longer, and why."""


def _functions(path: str) -> set[str]:
    """Names of the functions of a file."""
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_line_of_costs_is_of_a_test_that_is_there():
    names = {name for name in read_costs() if "test_" in name.rpartition("::")[2]}
    gone = {
        name
        for name in names
        if not (REPOSITORY / name.partition("::")[0]).exists()
        or name.rpartition("::")[2] not in _functions(name.partition("::")[0])
    }
    assert gone == set(), "run: pytest -m everything --measure"


def test_no_case_of_the_default_suite_is_dear(request: pytest.FixtureRequest):
    costs = read_costs()
    dear = {
        function_of(item.nodeid): costs[function_of(item.nodeid)].dearest
        for item in request.session.items
        if not item.get_closest_marker("long")
        and function_of(item.nodeid) in costs
        and costs[function_of(item.nodeid)].dearest > MOST_SECONDS
    }
    assert {name: seconds for name, seconds in dear.items() if name not in DEAR} == {}


def test_every_case_is_in_one_of_the_two_suites(request: pytest.FixtureRequest):
    """Those of this run: of each of them ``everything`` holds, and ``long`` or not decides which suite it is in."""
    assert all(item.get_closest_marker("everything") for item in request.session.items)
    default = request.config.getini("addopts")
    assert "not long" in " ".join(default)
