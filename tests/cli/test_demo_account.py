"""The demo's account finds what it is there to find: losses, disorder, messages that come again after they were
acknowledged."""

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.demo.account import Keyed, Letters, make_account
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.demo.consumers import NOTE
from pulsar_spark.demo.flights import aircraft_of
from pulsar_spark.demo.reminders import YEAR_SECONDS, departures

DONE = {"msgOutCounter": 4, "ackedEntries": 4, "msgBacklog": 0}


def notes(*flights, partition=0, count=0, is_repaired=False, time=0):
    return np.array([(flight, 1, flight, partition, count, is_repaired, time) for flight in flights], NOTE)


def account(*parts, kind="Exclusive", stats=None, closed_after=None):
    return make_account("s", kind, 4, {**DONE, **(stats or {})}, list(parts), closed_after or {})


def test_a_full_account_has_no_defects():
    found = account(notes(0, 1, 2, 3))
    assert (found.defects, found.redelivered) == ([], 0)


@pytest.mark.parametrize(
    ("found", "defect"),
    [
        (account(notes(0, 1, 3)), "1 messages were never received"),
        (account(notes(0, 1, 2, 3, 9), stats={"msgOutCounter": 5}), "1 messages were received that nobody published"),
        (account(notes(0, 2, 1, 3)), "a consumer received 1 messages of partition 0 out of order"),
        (
            account(notes(0, 1, 2, 3), stats={"ackedEntries": 3, "msgBacklog": 1}),
            "3 of 4 messages are acknowledged, 1 are left",
        ),
        (
            account(notes(0, 1), notes(1, 2, 3), kind="Failover", stats={"msgOutCounter": 5}, closed_after={0: 2}),
            "1 messages came again after their consumer had acknowledged them and closed",
        ),
        (account(notes(0, 1, 2, 3), stats={"msgOutCounter": 3}), "4 messages were received but only 3 delivered"),
    ],
)
def test_a_broken_promise_is_named(found, defect):
    assert found.defects == [defect]


def test_what_a_shared_consumer_left_unacknowledged_may_come_again_in_any_order():
    assert account(notes(2, 0), notes(3, 1, 2), kind="Shared", stats={"msgOutCounter": 5}).defects == []


def test_order_is_per_partition():
    assert account(np.concatenate([notes(2, partition=1), notes(0), notes(3, partition=1), notes(1)])).defects == []


KEYS = np.array([0, 1, 0, 1])
"""Flights 0 and 2 are of one aircraft, 1 and 3 of another."""


def keyed(*parts, gone=(), closed_after=None, delivered=4):
    stats = {**DONE, "msgOutCounter": delivered}
    return make_account(
        "s", "KeyShared", 4, stats, list(parts), closed_after or {}, None, Keyed(KEYS, set(gone))
    ).defects


def test_aircraft_in_order_with_several_consumers_are_no_defect():
    """They overtake each other, and change hands; what a consumer that went had comes again."""
    assert keyed(notes(1, 0), notes(3, time=1), notes(2, time=2)) == []
    assert keyed(notes(1, 0, 3), notes(1, time=1), notes(0, 3, 2, time=2), gone=[0, 1], delivered=8) == []
    assert keyed(notes(0, 2, 1), notes(2, 3, time=1), gone=[0], closed_after={0: 1}, delivered=5) == []
    assert keyed(notes(2), notes(0, partition=1), notes(1, 3)) == [], "order is per partition"
    killed_and_left = [notes(1, 0), notes(1, 3, time=1), notes(0, 2, time=1)]
    assert keyed(*killed_and_left, gone=[0, 1], closed_after={1: 2}, delivered=6) == [], "it was killed before"


@pytest.mark.parametrize(
    ("found", "defect"),
    [
        (keyed(notes(1, 2, 0, 3)), "a consumer received 1 messages before earlier ones of their key"),
        (keyed(notes(0, 1, 2, 2, 3), delivered=5), "a consumer received 1 messages before earlier ones of their key"),
        (
            keyed(notes(2, 1, time=1), notes(0, 3, time=2)),
            "1 messages were received before earlier ones of their key, by different consumers",
        ),
        (
            keyed(notes(0, 2), notes(0, 1, 3, time=1), delivered=5),
            "1 messages were received by two consumers, neither of which went",
        ),
        (
            keyed(notes(0, 2), notes(0, 1, 2, 3, time=1), gone=[0], closed_after={0: 1}, delivered=6),
            "1 messages came again after their consumer had acknowledged them and closed",
        ),
    ],
)
def test_an_aircraft_out_of_order_is_named(found, defect):
    assert found == [defect]


def reminded(*parts, delivered=4):
    """The account of four reminders, due at 0, 10, 20, 30."""
    stats, due = {**DONE, "msgOutCounter": delivered}, np.arange(4) * 10
    return make_account("s", "Shared", 4, stats, list(parts), {}, due=due).defects


def test_a_reminder_comes_once_and_not_before_its_departure():
    assert reminded(notes(0, 1, time=10), notes(2, 3, time=31)) == []
    assert reminded(notes(0, 1, time=9), notes(3, time=29), notes(2, time=20)) == ["2 messages were received early"]
    assert reminded(notes(0, 1, 2, 3, time=30), notes(2, time=40), delivered=5) == ["1 messages came again"]


def test_departures_are_spread_over_the_accelerated_clock():
    hours = ["2013-01-01 05:00:00", "2013-07-02 16:00:00", "2013-12-31 23:00:00"]
    flights = pa.table({"id": [0, 1, 2], "time_hour": hours, "minute": [0, 30, 0]})
    first, middle, last = departures(flights)
    assert (first, last) == (0, YEAR_SECONDS) and abs(middle - YEAR_SECONDS / 2) < 0.1


def test_the_aircraft_of_a_flight_is_a_number_and_none_where_it_is_not_known():
    flights = pa.table({"tailnum": pa.array(["N1", None, "N2", "N1"])})
    assert aircraft_of(flights).tolist() == [0, -1, 1, 0]


def billed(*parts, dead=1, sent=1, acknowledged=1):
    """The account of four flights of which number 2 must die."""
    letters = Letters(np.array([2]), dead, sent, acknowledged)
    return make_account(
        "s", "Shared", 4, {**DONE, "msgOutCounter": 6}, [np.concatenate([notes(0, 1, 2, 3), *parts])], {}, letters
    )


ATTEMPTS = [notes(2, count=1), notes(2, count=2)]
REPAIRED = notes(2, is_repaired=True)


def test_dead_letters_that_were_all_repaired_are_no_defect():
    found = billed(*ATTEMPTS, REPAIRED)
    assert (found.defects, found.dead, found.repaired, found.redelivered) == ([], 1, 1, 2)


@pytest.mark.parametrize(
    ("found", "defect"),
    [
        (billed(*ATTEMPTS, REPAIRED, dead=2), "1 flights must die, 2 did, 1 were sent back, 1 of these acknowledged"),
        (billed(*ATTEMPTS), "1 flights were repaired that need not be, or were not although they had to be"),
        (
            billed(ATTEMPTS[0], REPAIRED),
            "1 flights came with redelivery count 2 that must not, or did not although they had to",
        ),
        (
            billed(*ATTEMPTS, notes(1, count=1), REPAIRED),
            "1 flights came with redelivery count 1 that must not, or did not although they had to",
        ),
        (billed(*ATTEMPTS, notes(2, count=3), REPAIRED), "1 deliveries came after the last attempt"),
    ],
)
def test_a_dead_letter_out_of_account_is_named(found, defect):
    assert defect in found.defects


def test_a_brokers_last_words_say_what_went_wrong_and_not_where_in_java(tmp_path):
    log = tmp_path / "broker.log"
    log.write_text(
        "it serves\nSparkException: the job was cancelled\n"
        + "\tat org.apache.spark.Some.frame(Some.scala:1)\n" * 200
        + "\n"
    )
    assert BrokerProcess(tmp_path, log).last_words() == "it serves\nSparkException: the job was cancelled"
