"""Who may not join a Key_Shared subscription, or asks for what cannot be: refused by name, and nothing is changed
(semantics 2.1-2.5, 2.25, 2.29)."""

import pytest

from pulsar_spark.protocol.keys.key_shared import AUTO_SPLIT, STICKY
from pulsar_spark.protocol.keys.selectors import AutoSplit, Member, Sticky
from tests.broker.test_key_shared import CLASSIC, RING, TOPIC, cursor_of, facts, join, ranges_in_rows, set_policies
from tests.broker.test_key_shared import sticky as stuck
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine

ON = On(TOPIC)
PRESENT = {"AUTO_SPLIT": join("a"), "STICKY": stuck("a", "10-19,30-39")}


def refused(engine: SparkEngine, request: dict, now_ms: int = 0) -> tuple[str, str]:
    """The refusal of one request: error and words; after it, and after a crash, all is as before."""
    bundle = engine.rounds.bundle
    before = (bundle.round, bundle.leases, bundle.lease_ms, sorted(bundle.cursors), *_facts(engine))
    (reply,) = engine.round([request], now_ms)["replies"]
    assert (bundle.round - 1, bundle.leases, bundle.lease_ms, sorted(bundle.cursors), *_facts(engine)) == before
    engine.start()
    assert _facts(engine) == before[4:]
    return reply.error, reply.text


def _facts(engine: SparkEngine) -> tuple:
    return (*facts(engine), ranges_in_rows(engine)) if engine.rounds.bundle.cursors else ()


UNKNOWN = [
    ({"key_shared_mode": "Sticky"}, "key_shared_mode 'Sticky' is none of AUTO_SPLIT, STICKY"),
    ({"key_shared_mode": "x" * 5000}, "is none of AUTO_SPLIT, STICKY"),
    ({"key_shared_mode": "\x00"}, "is none of AUTO_SPLIT, STICKY"),
    ({"allow_out_of_order_delivery": "True"}, "allow_out_of_order_delivery 'True': give 'true' or 'false'"),
    ({"allow_out_of_order_delivery": "1"}, "give 'true' or 'false'"),
    *(
        ({"key_shared_mode": STICKY, "hash_ranges": text}, "is not two whole numbers")
        for text in (
            " ",
            "null",
            "5",
            "-",
            "0-9,",
            ",",
            "0-9;20-29",
            "0 - 9",
            "0--",
            "٣-٤",
            "0x1-0x2",
            "1e3-1e4",
            "[0, 9]",
            "0-2147483648",
            "-2147483649-0",
            "0-" + "9" * 5000,
            "\x00",
        )
    ),
    ({"hash_ranges": ",".join(["0-1"] * 10**6)}, "1000000 ranges are more than the 65536 hashes there are"),
]


@pytest.mark.parametrize("properties, words", UNKNOWN, ids=[str(number) for number in range(len(UNKNOWN))])
@pytest.mark.parametrize("present", [None, *PRESENT.values()], ids=["alone", *PRESENT])
def test_what_is_no_policy_is_refused(engine, present, properties, words):
    engine.round([present] if present else [], 0)
    error, said = refused(engine, join("b", **properties))
    assert error == "InvalidConfiguration" and words in said and len(said) < 1000


RANGES = [
    ("", "has no hash range"),
    ("9-0", "9 to 0 is not a hash range"),
    ("-5-1", "-5 to 1 is not a hash range"),
    ("-2147483647--1", "is not a hash range"),
    ("0-4,7-6", "7 to 6 is not a hash range"),
    ("19-19", "19 to 19 overlaps 10 to 19 of consumer 'a'"),
    ("0-10", "0 to 10 overlaps 10 to 19 of consumer 'a'"),
    ("50-60,0-100000", "0 to 100000 overlaps"),
    ("0-5,12-15", "12 to 15 overlaps 10 to 19 of consumer 'a'"),
    ("0-2147483647", "0 to 2147483647 overlaps"),
    ("40-50,45-60", "45 to 60 overlaps 40 to 50 of consumer 'b'"),
    ("40-50,40-50", "40 to 50 overlaps 40 to 50 of consumer 'b'"),
]


@pytest.mark.parametrize("ranges, words", RANGES)
def test_ranges_that_cannot_be_given_are_refused(engine, ranges, words):
    engine.round([PRESENT[STICKY]], 0)
    error, said = refused(engine, stuck("b", ranges))
    assert error == "ConsumerAssignError" and "consumer 'b'" in said and words in said and "held by" not in said


@pytest.mark.parametrize("ranges", [ranges for ranges, words in RANGES if "consumer 'a'" not in words][:5])
def test_nor_is_a_subscription_made_for_them(engine, ranges):
    assert refused(engine, stuck("b", ranges))[0] == "ConsumerAssignError"
    assert not engine.rounds.bundle.cursors


def test_a_range_that_is_too_small_to_be_split_is_refused(engine):
    """2.25, with a range that three consumers fill."""
    set_policies(engine, {RING: 0})
    engine.round([join("a")], 0)
    cursor = cursor_of(engine)
    cursor.selector = AutoSplit(((3, "a"),), range_size=3)
    engine.round([join("b"), join("c")], 0)
    before = cursor.selector, list(cursor.consumers), cursor.joined
    (reply,) = engine.round([join("d")], 0)["replies"]
    assert reply.error == "ConsumerAssignError" and "a hash range of 3 can be split for at most" in reply.text
    assert (cursor.selector, list(cursor.consumers), cursor.joined) == before


def test_a_newcomer_whose_numbers_are_wrong_leaves_no_trace_either(engine):
    engine.round([PRESENT[STICKY]], 0)
    for properties in ({"priority_level": "x"}, {"max_redeliver_count": "-1"}, {"lease_ms": 0}):
        assert refused(engine, stuck("b", "0-9", **properties))[0] == "InvalidConfiguration"


def test_before_4_0_own_ranges_may_overlap(engine):
    set_policies(engine, {CLASSIC: 1})
    engine.round([stuck("a", "0-10,5-20"), stuck("b", "30-40,30-40")], 0)
    assert cursor_of(engine).hash_ranges == {"a": [(0, 20)], "b": [(30, 40)]}
    assert refused(engine, stuck("c", "20-30"))[0] == "ConsumerAssignError"


def test_ranges_beyond_the_last_hash_and_half_as_many_as_there_are_hashes_are_taken(engine):
    engine.round([stuck("a", "65536-2147483647"), stuck("b", "0-0")], 0)
    engine.round([stuck("c", ",".join(f"{number}-{number}" for number in range(1, 65536, 2)))], 0)
    before = facts(engine)
    assert [len(before[4][each]) for each in "abc"] == [1, 1, 32768]
    engine.start()
    assert facts(engine) == before


@pytest.mark.parametrize("policies", [{}, {RING: 0}], ids=["consistent hashing", "auto split"])
@pytest.mark.parametrize(
    "first, second, words",
    [
        (join("a"), stuck("b", "0-9"), "key_shared mode AUTO_SPLIT"),
        (stuck("a", "0-9"), join("b"), "key_shared mode STICKY"),
        (join("a"), join("b", allow_out_of_order_delivery="true"), "without allow_out_of_order_delivery"),
        (join("a", allow_out_of_order_delivery="true"), join("b"), "with allow_out_of_order_delivery"),
    ],
)
def test_a_second_mode_or_order_on_a_subscription_in_use_is_refused(engine, policies, first, second, words):
    """As from 4.0 on, where the first consumer's policy is compared (against 2.4)."""
    set_policies(engine, policies)
    engine.round([first], 0)
    error, said = refused(engine, second)
    assert error == "SubscriptionBusy" and words in said and "consumer 'a' of client 'a@client'" in said
    engine.round([ON.close("a"), second], 0)
    assert list(cursor_of(engine).consumers) == ["b"], "as soon as nobody is there, it may come"


def test_the_classic_implementation_compares_no_policies(engine):
    """2.4, golden k2 "different policy": who comes later takes the mode that is there."""
    set_policies(engine, {CLASSIC: 1, RING: 0})
    engine.round([join("a"), stuck("b", "0-9", allow_out_of_order_delivery="true")], 0)
    cursor = cursor_of(engine)
    assert cursor.selector == AutoSplit().joined(Member("a")).joined(Member("b"))
    assert (cursor.key_shared_mode, cursor.allows_out_of_order) == (AUTO_SPLIT, False)
    engine.round([ON.close("a"), ON.close("b"), stuck("b", "0-9", allow_out_of_order_delivery="true")], 0)
    assert cursor.selector == Sticky((Member("b", "b", ((0, 9),)),))
    assert (cursor.key_shared_mode, cursor.allows_out_of_order) == (STICKY, True)
    assert refused(engine, join("c"))[0] == "ConsumerAssignError", "one that has no ranges cannot take part"


@pytest.mark.parametrize("other", ["Shared", "Failover", "Exclusive"])
def test_other_types_and_key_shared_do_not_mix(engine, other):
    engine.round([join("a")], 0)
    assert refused(engine, ON.subscribe("b", other))[0] == "SubscriptionBusy"
    engine.round([ON.close("a"), ON.subscribe("b", other)], 0)
    assert refused(engine, join("a"))[0] == "SubscriptionBusy"


def test_the_limit_of_consumers_holds(engine):
    set_policies(engine, {"max_consumers_per_subscription": 2})
    engine.round([join("a"), join("b")], 0)
    assert refused(engine, join("c"))[0] == "ConsumerBusy"


def test_cumulative_acknowledgements_are_refused(engine):
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([join("a"), ON.flow("a", 9)], 0)
    assert refused(engine, ON.cumulative_ack(1, consumer="a", receipt=True))[0] == (
        "CumulativeAcknowledgementNotAllowedError"
    )
    assert cursor_of(engine).mark_delete == -1


def test_one_that_asks_twice_is_connected_once(engine):
    engine.round([stuck("a", "0-9"), stuck("a", "0-9"), stuck("a", "20-29")], 0)
    assert cursor_of(engine).hash_ranges == {"a": [(0, 9)]}


@pytest.mark.parametrize("gone, error", [(["a@client"], None), ([], "ConsumerAssignError")])
def test_ranges_of_a_process_that_is_gone_are_free(engine, monkeypatch, gone, error):
    """A consumer that was killed comes back at once, under its own name or another."""
    engine.round([stuck("a", "0-9")], 0)
    monkeypatch.setattr(engine.rounds.bundle.liveness, "look_at", lambda clients: gone)
    (reply,) = engine.round([stuck("b", "0-9", name="a")], 0)["replies"]
    assert reply.error == error
    assert cursor_of(engine).hash_ranges == {"a" if error else "b": [(0, 9)]}
