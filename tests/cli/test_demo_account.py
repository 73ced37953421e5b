"""The demo's account finds what it is there to find: losses, disorder, messages that come again after they were acknowledged."""
import numpy as np
import pytest

from pulsar_spark.demo.account import make_account
from pulsar_spark.demo.consumers import NOTE

DONE = {"msgOutCounter": 4, "ackedEntries": 4, "msgBacklog": 0}


def notes(*flights, partition=0):
    return np.array([(flight, 1, flight, partition, 0) for flight in flights], NOTE)


def account(*parts, kind="Exclusive", stats=None, closed_after=None):
    return make_account("s", kind, 4, {**DONE, **(stats or {})}, list(parts), closed_after or {})


def test_a_full_account_has_no_defects():
    found = account(notes(0, 1, 2, 3))
    assert (found.defects, found.redelivered) == ([], 0)


@pytest.mark.parametrize(("found", "defect"), [
    (account(notes(0, 1, 3)), "1 messages were never received"),
    (account(notes(0, 1, 2, 3, 9), stats={"msgOutCounter": 5}), "1 messages were received that nobody published"),
    (account(notes(0, 2, 1, 3)), "a consumer received 1 messages of partition 0 out of order"),
    (account(notes(0, 1, 2, 3), stats={"ackedEntries": 3, "msgBacklog": 1}), "3 of 4 messages are acknowledged, 1 are left"),
    (account(notes(0, 1), notes(1, 2, 3), kind="Failover", stats={"msgOutCounter": 5}, closed_after={0: 2}),
     "1 messages came again after their consumer had acknowledged them and closed"),
    (account(notes(0, 1, 2, 3), stats={"msgOutCounter": 3}), "4 messages were received but only 3 delivered"),
])
def test_a_broken_promise_is_named(found, defect):
    assert found.defects == [defect]


def test_what_a_shared_consumer_left_unacknowledged_may_come_again_in_any_order():
    assert account(notes(2, 0), notes(3, 1, 2), kind="Shared", stats={"msgOutCounter": 5}).defects == []


def test_order_is_per_partition():
    assert account(np.concatenate([notes(2, partition=1), notes(0), notes(3, partition=1), notes(1)])).defects == []
