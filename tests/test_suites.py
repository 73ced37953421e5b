"""A case that no suite runs, a dear one in the default suite, or a line of costs whose test is gone is seen here."""

import ast
from pathlib import Path

import pytest

from tests.support.costs import function_of, read_costs

REPOSITORY = Path(__file__).parents[1]
MOST_SECONDS = 3.0
DEAR = {
    "tests/broker/test_golden.py::test_shared_exclusive_and_failover": "the first rounds on Spark of a session",
    "tests/broker/test_golden.py::test_who_is_served": "all recordings in one plan on Spark",
    "tests/broker/test_split_crashes.py::test_without_power_after_any_sync": "a split without power at each sync",
    "tests/differential/test_histories.py::test_a_few_rounds_do_what_the_reference_broker_does": "random histories",
    "tests/docs/test_blocks.py::test_the_code_of_a_page_runs": "what a reader tries first runs as it stands",
    "tests/docs/test_site.py::test_the_site_is_built_without_a_warning": "builds all pages once",
    "tests/frames/test_consume.py::test_a_run_gets_everything_once_and_the_next_one_nothing": "starts a broker",
    "tests/frames/test_consume.py::test_rows_given_back_come_again_in_the_next_run": "two runs of a consumer",
    "tests/frames/test_dead_letters.py::test_to_one_subscription_only_through_its_retry_letter_topic": "three jobs",
    "tests/frames/test_publish.py::test_a_transaction_is_published_once": "kills a publish at each write",
    "tests/frames/test_views.py::test_hashes_that_nobody_owns_are_said": "queries views on Spark",
    "tests/frames/test_views.py::test_views_have_the_columns_that_are_documented": "queries all views on Spark",
    "tests/jobs/test_notebooks.py::test_quickstart": "a notebook from its first cell to its last",
    "tests/spec/acknowledgement/test_batches.py::test_case": "the first cases of the specification on Spark",
    "tests/spec/compaction/test_survivors.py::test_survivors": "starts the Spark session",
    "tests/spec/expiry/test_time_to_live.py::test_case": "cases of the specification on Spark",
    "tests/test_types.py::test_the_package_passes_mypy": "reads all modules once",
    "tests/transforms/test_columns.py::test_ack_set_columns_do_what_the_rule_says": "starts the Spark session",
    "tests/transforms/test_deal.py::test_where_a_turn_covers_a_stretch_its_consumer_gets_it": "many turns on Spark",
    "tests/transforms/test_round.py::test_a_round_that_only_acknowledges_is_planned_without_the_steps_that_have_"
    "nothing_to_do": "plans two rounds on Spark",
    "tests/transforms/test_round.py::test_where_all_are_whole_entries_their_parts_are_not_asked_for_either": "rounds",
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
