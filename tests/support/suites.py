"""Which suite a case is in: ``long`` ones are left out of the default suite.

A case on Spark is in the default suite if it is one of those listed here. Any other case is, unless its function is
dear (``tests/costs.tsv``). The mark ``default`` keeps a dear function without Spark in it, the mark ``long`` leaves any
case out.
"""

import pytest

from tests.support.costs import Cost, function_of

MOST_SECONDS = 1.2
"""What all cases of a function of the default suite take together."""
ON_SPARK = (
    "tests/transforms/",
    "tests/spec/acknowledgement/test_batches.py",
    "tests/spec/chunks/test_places.py",
    "tests/spec/compaction/test_survivors.py",
    "tests/spec/delayed/test_key_shared.py",
    "tests/spec/expiry/test_time_to_live.py",
    "tests/spec/key_shared/test_reading.py",
    "tests/spec/redelivery/test_counts.py",
    "tests/spec/subscriptions/test_failover.py",
    "tests/broker/test_golden.py::test_shared_exclusive_and_failover",
    "tests/broker/test_golden.py::test_who_is_served",
    "tests/differential/test_random_rounds.py",
    "tests/docs/test_blocks.py::test_the_code_of_a_page_runs[README.md]",
    "tests/docs/test_blocks.py::test_the_code_of_a_page_runs[docs/start/spark.md]",
    "tests/frames/test_consume.py::test_a_run_gets_everything_once_and_the_next_one_nothing",
    "tests/frames/test_consume.py::test_rows_given_back_come_again_in_the_next_run",
    "tests/frames/test_dead_letters.py::test_to_one_subscription_only_through_its_retry_letter_topic",
    "tests/frames/test_publish.py::test_every_column_arrives",
    "tests/frames/test_publish.py::test_bad_input_publishes_nothing",
    "tests/frames/test_publish.py::test_a_transaction_is_published_once",
    "tests/frames/test_views.py::test_sql_over_views_takes_parameters",
    "tests/frames/test_views.py::test_views_have_the_columns_that_are_documented",
    "tests/frames/test_views.py::test_hashes_that_nobody_owns_are_said",
    "tests/jobs/test_notebooks.py::test_quickstart",
)
"""Beginnings of the ids of the cases on Spark that are in the default suite: each transform, a file of each chapter of
the specification, recordings, the DataFrame API, a notebook, and README's first lines, which start a broker."""


def is_long(item: pytest.Item, costs: dict[str, Cost]) -> bool:
    """Whether a case is left out of the default suite."""
    if item.get_closest_marker("long"):
        return True
    if item.get_closest_marker("spark"):
        return not item.nodeid.startswith(ON_SPARK)
    if item.get_closest_marker("default"):
        return False
    cost = costs.get(function_of(item.nodeid))
    return cost is not None and cost.seconds > MOST_SECONDS
