"""What is shipped, against what Pulsar's own classes did: real requests, real rounds, the plan of Spark.

Golden k1, k2 and k3 (the broker side of a subscription), h1 (its cursor) and f (who is served), by the modules of
``tests.protocol.golden``, which judge the reference broker too (test_golden_model) and say which semantics the cases
left out or deviating follow. All cases of a file are topics of one broker, played in its rounds together: on Spark
they take some twenty seconds, on the planner without Spark two.
"""

from functools import cache

import pytest

from tests.protocol.golden import cursor, key_shared, named, picks, subscription
from tests.protocol.golden.lockstep import play
from tests.support.spark_engine import new_engine

PLANNERS = ["plain", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture(scope="module")
def played(request, tmp_path_factory):
    """``played(planner, player_of, cases)``: the results, played once a module."""

    @cache
    def play_all(planner: str, player_of) -> list:
        spark = request.getfixturevalue("spark") if planner == "spark" else None
        return play(new_engine(spark, tmp_path_factory.mktemp("root")), player_of, CASES[player_of])

    return play_all


CASES = {
    subscription.differences: subscription.CASES,
    key_shared.classic: key_shared.CASES,
    key_shared.draining: key_shared.CASES,
    cursor.replay: cursor.CASES,
    picks.serve: picks.CASES,
}


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("number", range(len(subscription.CASES)), ids=map(named, subscription.CASES))
def test_shared_exclusive_and_failover(played, planner, number):
    subscription.check(subscription.CASES[number], played(planner, subscription.differences)[number])


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("rule", key_shared.PLAYERS)
@pytest.mark.parametrize("number", range(len(key_shared.CASES)), ids=key_shared.titled)
def test_key_shared(played, planner, rule, number):
    key_shared.check(rule, number, played(planner, key_shared.PLAYERS[rule])[number])


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("case", subscription.DELAYED_CASES, ids=named)
def test_delayed_on_shared(request, tmp_path, planner, case):
    spark = request.getfixturevalue("spark") if planner == "spark" else None
    (found,) = play(new_engine(spark, tmp_path), subscription.differences, [case])
    subscription.check(case, found)


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("number", range(len(cursor.CASES)), ids=map(named, cursor.CASES))
def test_cursor_after_each_operation(played, planner, number):
    failed = played(planner, cursor.replay)[number]
    assert failed is None, failed


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("number", range(len(picks.CASES)), ids=map(picks.named, picks.CASES))
def test_who_is_served(played, planner, number):
    failed = played(planner, picks.serve)[number]
    assert failed is None, failed
