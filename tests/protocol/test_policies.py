"""Which policies there may be, and the arithmetic of expiry, quotas and retention."""

import re
from pathlib import Path

import pytest

import pulsar_spark
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.policies.expiry import (
    Activity,
    Delayed,
    Retention,
    Stored,
    backlog_bytes,
    evicted_up_to,
    expired,
    has_expired,
)
from pulsar_spark.protocol.policies.policies import POLICIES, check_policy, policy_text


def is_refused(name: str, value: str) -> bool:
    try:
        check_policy(name, value)
    except InvalidConfiguration:
        return True
    return False


@pytest.mark.parametrize("name", POLICIES)
def test_every_default_is_a_value_its_policy_may_have(name):
    assert not is_refused(name, str(POLICIES[name]))


@pytest.mark.parametrize(
    "name, value",
    [
        ("message_ttl_seconds", "-1"),
        ("message_ttl_seconds", "soon"),
        ("message_ttl_seconds", ""),
        ("message_ttl_seconds", "1.5"),
        ("message_ttl_seconds", "٣"),
        ("ttl_check_seconds", "0"),
        ("retention_seconds", "-2"),
        ("backlog_quota_policy", "1"),
        ("subscription_key_shared_use_consistent_hashing", "2"),
        ("subscription_key_shared_use_consistent_hashing", "true"),
        ("subscription_key_shared_one_owner_per_point", "-1"),
        ("subscription_key_shared_use_classic_persistent_implementation", "2"),
        ("subscription_key_shared_consistent_hashing_replica_points", "0"),
        ("subscription_key_shared_consistent_hashing_replica_points", "10001"),
        ("key_shared_look_ahead_msg_in_replay_threshold_per_consumer", "-1"),
        ("key_shared_look_ahead_msg_in_replay_threshold_per_subscription", "2147483648"),
        ("backlog_exceeded", "true"),
        ("colour", "1"),
        (None, "1"),
    ],
)
def test_other_values_are_refused(name, value):
    with pytest.raises(InvalidConfiguration, match=str(name)):
        check_policy(name, value)


def test_the_defaults_of_key_shared_are_those_of_pulsar():
    """ServiceConfiguration of 3.2.3 and 4.0.8; equal points as in 3.2.3 (0.4), draining hashes as in 4.0 (0.22)."""
    assert {name: POLICIES[name] for name in POLICIES if "key_shared" in name} == {
        "subscription_key_shared_use_consistent_hashing": 1,
        "subscription_key_shared_consistent_hashing_replica_points": 100,
        "subscription_key_shared_one_owner_per_point": 0,
        "subscription_key_shared_use_classic_persistent_implementation": 0,
        "key_shared_look_ahead_msg_in_replay_threshold_per_consumer": 2_000,
        "key_shared_look_ahead_msg_in_replay_threshold_per_subscription": 20_000,
    }


def test_for_ever_is_a_retention_and_less_than_that_is_none():
    assert (is_refused("retention_seconds", "-1"), is_refused("retention_seconds", "-2")) == (False, True)


@pytest.mark.parametrize(
    "mark_delete, last_old, delayed, left",
    [
        (-1, 4, [], [(0, 4)]),
        (4, 4, [], []),
        (-1, 4, [Delayed(0, 0, 600)], [(1, 4)]),
        (-1, 4, [Delayed(4, 9, 600)], [(0, 3)]),
        (-1, 4, [Delayed(2, 2, 500)], [(0, 1), (3, 4)]),
        (-1, 4, [Delayed(2, 2, 499)], [(0, 4)]),
        (2, 4, [Delayed(0, 1, 600), Delayed(2, 3, 600)], [(4, 4)]),
        (-1, 4, [Delayed(0, 4, 600)], []),
    ],
)
def test_expired(mark_delete, last_old, delayed, left):
    assert expired(mark_delete, last_old, delayed, dead_before=500) == left


@pytest.mark.parametrize(
    "cursors, minutes, is_over",
    [
        ([Activity(False, 0)], 2, True),
        ([Activity(False, 1)], 2, False),
        ([Activity(True, 0)], 2, False),
        ([Activity(False, 0)], 0, False),
        ([Activity(False, 0), Activity(False, 1)], 2, False),
        ([Activity(False, 0), Activity(True, 0)], 2, False),
        ([Activity(False, -5), Activity(False, 0)], 2, True),
    ],
)
def test_a_subscription_expires_when_all_its_cursors_are_idle_for_longer(cursors, minutes, is_over):
    assert has_expired(cursors, minutes, 120_000_001) is is_over


STRETCHES = [Stored(0, 9, 1000), Stored(10, 10, 500), Stored(11, 20, 100)]


@pytest.mark.parametrize("mark_delete, size", [(-1, 1600), (4, 1100), (9, 600), (10, 100), (15, 50), (20, 0)])
def test_the_backlog_in_bytes(mark_delete, size):
    assert backlog_bytes(STRETCHES, mark_delete) == size


@pytest.mark.parametrize(
    "mark_delete, limit",
    [(-1, 1600), (-1, 1500), (-1, 1000), (3, 1000), (-1, 600), (-1, 200), (-1, 50), (-1, 1), (20, 1), (9, 10_000)],
)
def test_eviction_leaves_nine_tenths_and_takes_no_entry_more(mark_delete, limit):
    found = evicted_up_to(STRETCHES, mark_delete, limit)
    assert found >= mark_delete
    assert backlog_bytes(STRETCHES, found) <= limit * 0.9 or found == 20
    assert found == mark_delete or backlog_bytes(STRETCHES, found - 1) > int(limit * 0.9)


@pytest.mark.parametrize(
    "seconds, size, age, newer, goes",
    [
        (0, 0, 0, 1, True),
        (-1, 0, 9e9, 9e9, False),
        (0, -1, 9e9, 9e9, False),
        (-1, -1, 9e9, 9e9, False),
        (60, 0, 61, 1, True),
        (60, 0, 60, 9e9, False),
        (0, 100, 9e9, 100, False),
        (0, 100, 0, 101, True),
        (60, 100, 61, 1, True),
        (60, 100, 1, 101, True),
        (60, 100, 1, 1, False),
        (-1, 100, 0, 101, True),
    ],
)
def test_retention(seconds, size, age, newer, goes):
    assert Retention(seconds, size).releases(age, newer) is goes


def test_nobody_else_looks_a_policy_up():
    """Topic, then namespace, then default is :func:`policy_text`: no other module falls back to a default."""
    package = Path(pulsar_spark.__file__).parent
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\bPOLICIES(\[|\.get)", path.read_text(encoding="utf-8"))
    }
    assert users == {"protocol/policies/policies.py"}


@pytest.mark.parametrize(
    "set_policies, expected",
    [
        ({"own": "1", "ns": "2"}, "1"),
        ({"ns": "2"}, "2"),
        ({"own": "1"}, "1"),
        ({}, "60"),
        ({"own": "0", "ns": "2"}, "0"),
    ],
)
def test_a_topics_own_policy_goes_before_its_namespaces_and_that_before_the_default(set_policies, expected):
    topic, name = "persistent://acme/billing/orders-partition-1", "ttl_check_seconds"
    owners = {"own": topic, "ns": "acme/billing", "other": "acme/other"}
    policies = {(owners[who], name): value for who, value in set_policies.items()} | {(owners["other"], name): "9"}
    assert policy_text(policies, topic, name) == expected
