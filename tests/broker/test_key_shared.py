"""Who of a Key_Shared subscription owns which hashes: as consumers come and go in every way, after a crash, and as the
rows say it (semantics 2.4, 2.24-2.35, 0.4, 0.11)."""

import random

import pytest

from pulsar_spark.protocol.keys.key_shared import KeySharedRules
from pulsar_spark.protocol.keys.selectors import AutoSplit, ConsistentHashing, ConsistentHashing4, Member, Sticky
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.topics.topics import delete_topic
from tests.broker.test_key_shared_dues import keys
from tests.support.requests import On, leave
from tests.support.spark_engine import SparkEngine, cursor_of

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
CLASSIC = "subscription_key_shared_use_classic_persistent_implementation"
RING = "subscription_key_shared_use_consistent_hashing"
ONE_OWNER = "subscription_key_shared_one_owner_per_point"
POINTS = "subscription_key_shared_consistent_hashing_replica_points"
POLICIES = {
    "auto split": ({RING: 0}, AutoSplit()),
    "consistent hashing": ({}, ConsistentHashing()),
    "few points": ({POINTS: 3}, ConsistentHashing(points=3)),
    "consistent hashing of 4.0": ({ONE_OWNER: 1, POINTS: 300}, ConsistentHashing4(points=300)),
}


def join(consumer: str, **properties) -> dict:
    return ON.subscribe(consumer, "KeyShared", **properties)


def sticky(consumer: str, ranges: str, **properties) -> dict:
    return join(consumer, key_shared_mode="STICKY", hash_ranges=ranges, **properties)


def run(engine: SparkEngine, *requests: dict, now_ms: int = 0) -> list[str]:
    """A round of these; the errors of those that were refused."""
    return [reply.error for reply in engine.round(list(requests), now_ms)["replies"] if reply.error]


def set_policies(engine: SparkEngine, policies: dict[str, int]) -> None:
    assert run(engine, *(ON.policy(name, value) for name, value in policies.items())) == []


def facts(engine: SparkEngine) -> tuple:
    """All that is known of who owns what."""
    cursor = cursor_of(engine)
    return cursor.selector, cursor.key_shared, cursor.recently_joined, list(cursor.consumers), cursor.hash_ranges


def facts_after_a_crash(engine: SparkEngine) -> tuple:
    engine.start()
    return facts(engine)


def rows(engine: SparkEngine) -> tuple[dict, dict]:
    """The rows of the cursor and, by name, of its consumers."""
    latest = read_latest(engine.layout)
    ((key, row),) = latest.cursors.items()
    return row, latest.consumers[key]


def ranges_in_rows(engine: SparkEngine) -> dict[str, list[tuple[int, int]]]:
    return {
        consumer_id: [(owned["start"], owned["end"]) for owned in row["hash_ranges"]]
        for consumer_id, row in rows(engine)[1].items()
        if row["hash_ranges"]
    }


@pytest.mark.parametrize("policies, selector", POLICIES.values(), ids=POLICIES)
def test_ownership_follows_joins_and_leaves_and_outlives_crashes(engine, policies, selector):
    """Names are shared, and who is gone leaves its traces: on the ring of 4.0 a point stays lost to whom it was lost
    to."""
    set_policies(engine, policies)
    dice, present = random.Random(7), []
    for number in range(25):
        if len(present) < 2 or (len(present) < 9 and dice.random() < 0.6):
            member = Member(f"c{number}", f"n{dice.randrange(4)}")
            assert run(engine, join(member.consumer_id, name=member.name)) == []
            present.append(member.consumer_id)
            selector = selector.joined(member)
        else:
            gone = present.pop(dice.randrange(len(present)))
            assert run(engine, ON.close(gone)) == []
            selector = selector.left(gone)
        before = facts(engine)
        assert (before[0], before[3]) == (selector, present)
        assert ranges_in_rows(engine) == before[4]
        if number % 5 == 4:
            engine.restart(0)
        if number % 3 == 2:
            assert facts_after_a_crash(engine) == before
    assert len(present) > 4


def test_sticky_ranges_outlive_crashes_and_restarts_as_they_were_asked_for(engine):
    set_policies(engine, {CLASSIC: 1})
    assert run(engine, sticky("a", "0-9,20-29"), sticky("b", "30-65535"), now_ms=0) == []
    before = facts(engine)
    assert before[0] == Sticky((Member("a", "a", ((0, 9), (20, 29))), Member("b", "b", ((30, 65535),))))
    assert facts_after_a_crash(engine) == before
    engine.restart(1)
    assert facts(engine) == before
    assert run(engine, sticky("c", "12-15"), now_ms=1) == [], "nobody asked for a hole, though it is owned (2.30)"
    assert ranges_in_rows(engine) == {"a": [(0, 9), (20, 29)], "b": [(30, 65535)], "c": [(12, 15)]}


WAYS_TO_LEAVE = {
    "consumer closed": ([ON.close("b")], 0, []),
    "client closed": ([leave("b")], 0, []),
    "lease ended": ([], 1001, []),
    "process gone": ([], 0, ["b@client"]),
}


@pytest.mark.parametrize("requests, now_ms, gone", WAYS_TO_LEAVE.values(), ids=WAYS_TO_LEAVE)
def test_however_a_consumer_leaves_its_hashes_are_others(engine, monkeypatch, requests, now_ms, gone):
    set_policies(engine, {RING: 0})
    run(engine, join("a"), join("b", lease_ms=1000))
    assert cursor_of(engine).hash_ranges == {"b": [(0, 32768)], "a": [(32769, 65536)]}
    monkeypatch.setattr(engine.rounds.bundle.liveness, "gone", lambda leases: gone)
    assert run(engine, *requests, now_ms=now_ms) == []
    assert cursor_of(engine).hash_ranges == ranges_in_rows(engine) == {"a": [(0, 65536)]}
    assert facts_after_a_crash(engine)[0] == AutoSplit(((65536, "a"),))


WAYS_TO_END = {
    "the last one closed": [leave("a")],
    "unsubscribed": [ON.unsubscribe(force=True), ON.create_subscription()],
}


@pytest.mark.parametrize("requests", WAYS_TO_END.values(), ids=WAYS_TO_END)
def test_nothing_is_left_when_all_are_gone(engine, requests):
    set_policies(engine, {CLASSIC: 1})
    engine.publish(TOPIC, -1, [1, 1])
    run(engine, join("a", allow_out_of_order_delivery="true"), ON.flow("a", 9))
    assert cursor_of(engine).allows_out_of_order and cursor_of(engine).key_shared_mode == "AUTO_SPLIT"
    run(engine, *requests)
    nothing = (None, None, {}, [], {})
    assert facts(engine) == facts_after_a_crash(engine) == nothing
    cursor = cursor_of(engine)
    assert (cursor.is_key_shared, cursor.key_shared_mode, cursor.allows_out_of_order) == (False, None, False)
    row, of_consumers = rows(engine)
    assert (row["key_shared_mode"], row["allow_out_of_order_delivery"], row["properties"]) == (None, None, [])
    assert of_consumers == {}


def test_a_topic_that_is_deleted_takes_its_owners_along(engine):
    run(engine, join("a"), join("b"))
    delete_topic(engine.layout, TOPIC)
    assert run(engine) == [] and not engine.rounds.bundle.cursors
    engine.start()
    assert not engine.rounds.bundle.cursors


def test_other_types_own_nothing(engine):
    run(engine, ON.subscribe("a"))
    assert facts(engine) == (None, None, {}, ["a"], {})
    row, of_consumers = rows(engine)
    assert row["key_shared_mode"] is of_consumers["a"]["hash_ranges"] is None


def test_only_consumers_whose_ranges_changed_get_a_new_row(engine):
    set_policies(engine, {RING: 0})
    run(engine, join("a"), join("b"), join("c"))
    assert cursor_of(engine).hash_ranges == {"c": [(0, 16384)], "b": [(16385, 32768)], "a": [(32769, 65536)]}
    since = engine.number
    run(engine, join("d"))
    assert cursor_of(engine).hash_ranges["d"] == [(32769, 49152)]
    assert {consumer_id for consumer_id, row in rows(engine)[1].items() if row["round"] >= since} == {"a", "d"}


def test_ranges_are_written_as_somebody_comes_or_goes_and_found_by_who_looks_later(engine):
    engine.publish(TOPIC, -1, [1] * 9)
    run(engine, join("a"), join("b"))
    before = ranges_in_rows(engine)
    run(engine, ON.flow("a", 1), ON.flow("b", 1))
    latest = read_round(engine.layout.broker_table("cursor_ledger"), engine.rounds.bundle.version).to_pylist()
    written = [row for row in latest if row["kind"] == "consumer"]
    assert {row["consumer_id"] for row in written} >= {"a"} and {str(row["hash_ranges"]) for row in written} == {"None"}
    assert ranges_in_rows(engine) == before == cursor_of(engine).hash_ranges
    run(engine, ON.close("b"), join("b"), ON.flow("a", 1))
    assert ranges_in_rows(engine) == facts_after_a_crash(engine)[4] == before
    run(engine, ON.close("a"), ON.close("b"), ON.subscribe("a"))
    assert rows(engine)[1]["a"]["hash_ranges"] is None, "of another type it owns nothing"


def test_a_seek_changes_no_owner_and_forgets_who_came_of_late(engine):
    set_policies(engine, {CLASSIC: 1})
    engine.publish(TOPIC, -1, [1, 1])
    run(engine, join("a"), ON.flow("a", 9))
    run(engine, join("b"))
    before = facts(engine)
    assert before[2] == {"b": 2}
    run(engine, ON.seek(0))
    assert facts(engine) == (*before[:2], {}, *before[3:])
    assert facts_after_a_crash(engine) == (*before[:2], {}, *before[3:])


def test_the_rules_are_those_of_the_first_consumer_until_the_last_is_gone(engine):
    run(engine, join("a"), now_ms=0)
    set_policies(engine, {RING: 0, POINTS: 5, CLASSIC: 1, ONE_OWNER: 1})
    run(engine, join("b"))
    assert cursor_of(engine).key_shared == KeySharedRules()
    assert facts_after_a_crash(engine)[1] == KeySharedRules()
    run(engine, join("c"), ON.close("a"), ON.close("b"))
    assert cursor_of(engine).selector == ConsistentHashing((Member("c", "c"),))
    run(engine, ON.close("c"))
    run(engine, join("d"))
    assert cursor_of(engine).key_shared == KeySharedRules("AUTO_SPLIT", False, 0, 5, 1, 1)


def test_a_dead_letter_policy_and_the_rules_share_a_row(engine):
    run(engine, join("a", max_redeliver_count=2))
    cursor = cursor_of(engine)
    assert cursor.dead_letters == {"max_redeliver_count": "2"} and cursor.key_shared == KeySharedRules()
    assert dict(rows(engine)[0]["properties"]) == cursor.dead_letters | KeySharedRules().properties()
    engine.start()
    assert (cursor_of(engine).dead_letters, cursor_of(engine).key_shared) == (cursor.dead_letters, cursor.key_shared)


@pytest.mark.parametrize("acknowledged, position", [(None, {"b": 4}), (2, {"b": 4}), (3, {})])
def test_who_joins_while_entries_are_out_is_remembered_with_the_read_position(engine, acknowledged, position):
    """One entry that is out is enough (2.32): what is counted is read position - mark-delete."""
    set_policies(engine, {CLASSIC: 1})
    engine.publish(TOPIC, -1, [1, 1, 1, 1])
    run(engine, join("a"), ON.flow("a", 9))
    run(engine, *([] if acknowledged is None else [ON.ack(0, acknowledged)]))
    run(engine, join("b"))
    assert cursor_of(engine).recently_joined == position
    assert facts_after_a_crash(engine)[2] == position


@pytest.mark.parametrize(
    "policies, properties",
    [({}, {}), ({CLASSIC: 1}, {"allow_out_of_order_delivery": "true"}), ({CLASSIC: 1}, {"client": "first"})],
    ids=["draining hashes", "out of order", "the first consumer"],
)
def test_nobody_is_remembered(engine, policies, properties):
    set_policies(engine, policies)
    engine.publish(TOPIC, -1, [1, 1, 1, 1])
    run(engine, join("a", **properties), ON.flow("a", 9))
    if "client" not in properties:
        run(engine, join("b", **properties))
    assert cursor_of(engine).recently_joined == {}


def test_who_came_of_late_is_forgotten_as_it_leaves_and_when_one_is_left(engine):
    set_policies(engine, {CLASSIC: 1})
    engine.publish(TOPIC, -1, [1, 1, 1, 1])
    run(engine, join("a"), ON.flow("a", 2))
    run(engine, join("b"))
    run(engine, ON.flow("a", 1))
    run(engine, join("c"))
    run(engine, join("d"))
    assert cursor_of(engine).recently_joined == {"b": 2, "c": 3, "d": 3}
    run(engine, ON.close("c"))
    assert cursor_of(engine).recently_joined == {"b": 2, "d": 3} == facts_after_a_crash(engine)[2]
    run(engine, ON.close("a"), ON.close("d"))
    assert cursor_of(engine).recently_joined == {}
    assert facts_after_a_crash(engine)[2] == {}


def test_what_fills_a_queue_at_each_of_two_consumers_is_planned_as_few_rows(engine, monkeypatch):
    """Keys in turns: entry by entry it would be a row each."""
    planned, plan = [], engine.rounds.plan
    monkeypatch.setattr(engine.rounds, "plan", lambda work: planned.append(work.rows.num_rows) or plan(work))
    engine.round([sticky("a", "0-32767"), sticky("b", "32768-65535"), ON.flow("a", 1000), ON.flow("b", 1000)], 0)
    in_turns = [key for pair in zip(keys(True)[:9], keys(False)[:9]) for key in pair]
    engine.publish(TOPIC, -1, [1] * 1000, keys=[in_turns[at % 18] for at in range(1000)])
    assert len(engine.round([], 0)["deliveries"]) == 1000
    engine.round([ON.ack(at, at, consumer="ab"[at % 2]) for at in range(0, 1000, 3)], 0)
    assert sorted(engine.state(TOPIC, -1, "s")["pending"]) == [at for at in range(1000) if at % 3]
    assert max(planned) <= 10
