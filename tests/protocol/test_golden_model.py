"""The reference broker against what Pulsar's own classes did: golden k1, k2, k3, h1 (see the modules of ``golden``)."""

import pytest

from tests.protocol.golden import cursor, key_shared, named, subscription
from tests.protocol.golden.lockstep import play
from tests.support.model import Model


@pytest.mark.parametrize("case", subscription.CASES + subscription.DELAYED_CASES, ids=named)
def test_shared_exclusive_and_failover(case):
    (found,) = play(Model(), subscription.differences, [case])
    subscription.check(case, found)
    subscription.check_deviation(case, found)


@pytest.mark.parametrize("case", cursor.CASES, ids=named)
def test_cursor_after_each_operation(case):
    (failed,) = play(Model(), cursor.replay, [case])
    assert failed is None, failed


@pytest.mark.parametrize("rule", key_shared.PLAYERS)
@pytest.mark.parametrize("number", range(len(key_shared.CASES)), ids=key_shared.titled)
def test_key_shared(rule, number):
    (found,) = play(Model(), key_shared.PLAYERS[rule], [key_shared.CASES[number]])
    key_shared.check(rule, number, found)
    key_shared.check_deviation(rule, number, found)
