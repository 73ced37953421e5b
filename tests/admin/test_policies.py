"""Policies as an administrator sets them: by name or by verb, together or not at all."""

import pytest
from typer.testing import CliRunner

from pulsar_spark.admin import Admin
from pulsar_spark.cli import app
from pulsar_spark.errors import InvalidConfiguration, InvalidTopicName
from pulsar_spark.protocol.policies.policies import BACKLOG_EXCEEDED, POLICIES
from pulsar_spark.testing.plain_broker import PlainBroker, said
from tests.admin.broker_double import BrokerDouble

TOPIC = "persistent://public/default/orders"


@pytest.fixture
def admin(layout) -> Admin:
    admin = Admin(f"delta:{layout.root}", timeout_seconds=20)
    admin.create_topic(TOPIC)
    return admin


def test_verbs_ask_for_their_policies_in_one_commit(admin, layout):
    with PlainBroker(layout.root) as broker:
        admin.set_message_ttl("public/default", 60)
        admin.set_backlog_quota(TOPIC, limit_size=1000, policy="consumer_backlog_eviction")
        admin.set_retention(TOPIC, -1, 0)
        admin.set_subscription_expiration_time("public/default", 1440)
    assert [(request.topic, said(request)) for request in broker.requests()] == [
        (None, {"name": "message_ttl_seconds", "value": "60", "namespace": "public/default"}),
        (TOPIC, {"name": "backlog_quota_policy", "value": "consumer_backlog_eviction"}),
        (TOPIC, {"name": "backlog_quota_bytes", "value": "1000"}),
        (TOPIC, {"name": "backlog_quota_seconds", "value": "0"}),
        (TOPIC, {"name": "retention_seconds", "value": "-1"}),
        (TOPIC, {"name": "retention_bytes", "value": "0"}),
        (None, {"name": "subscription_expiration_minutes", "value": "1440", "namespace": "public/default"}),
    ]


def test_a_policy_to_remove_is_named_without_a_value(admin, layout):
    with PlainBroker(layout.root) as broker:
        for name in POLICIES:
            admin.remove_policy(TOPIC, name)
        admin.remove_message_ttl("public/default")
        admin.remove_backlog_quota(TOPIC)
        admin.remove_retention(TOPIC)
        admin.remove_subscription_expiration_time(TOPIC)
    assert [said(request) for request in broker.requests()] == [{"name": name} for name in POLICIES] + [
        {"name": "message_ttl_seconds", "namespace": "public/default"},
        {"name": "backlog_quota_policy"},
        {"name": "backlog_quota_bytes"},
        {"name": "backlog_quota_seconds"},
        {"name": "retention_seconds"},
        {"name": "retention_bytes"},
        {"name": "subscription_expiration_minutes"},
    ]


def test_resetting_a_namespace_removes_what_is_set_on_it(admin, layout):
    admin.create_namespace("public/other")
    with PlainBroker(layout.root) as broker:
        for owner in ("public/default", "public/other"):
            admin.set_message_ttl(owner, 0)
        admin.reset_namespace("public/default")
    assert [said(request) for request in broker.requests()[2:]] == [
        {"name": "message_ttl_seconds", "namespace": "public/default"}
    ]
    assert admin.get_policies("public/other") == {"message_ttl_seconds": "0"}
    assert admin.get_policies("public/default") == {}


def test_wrong_values_are_not_sent(admin, layout):
    with PlainBroker(layout.root) as broker:
        for wrong in (
            lambda: admin.set_backlog_quota(TOPIC, 1, policy="drop"),
            lambda: admin.set_backlog_quota(TOPIC, -1),
            lambda: admin.set_retention(TOPIC, -2, 0),
            lambda: admin.set_message_ttl(TOPIC, "1h"),
            lambda: admin.set_subscription_expiration_time(TOPIC, -1),
            lambda: admin.set_subscription_expiration_time(TOPIC, 0.5),
            lambda: admin.set_policy(TOPIC, "colour", 1),
            lambda: admin.remove_policy(TOPIC, "colour"),
            lambda: admin.remove_policy(TOPIC, BACKLOG_EXCEEDED),
            lambda: admin.set_policy(TOPIC, "message_ttl_seconds", None),
            lambda: admin.set_policy(TOPIC, BACKLOG_EXCEEDED, "true"),
        ):
            with pytest.raises(InvalidConfiguration):
                wrong()
        for no_text in (
            lambda: admin.set_policy(b"public/default", "message_ttl_seconds", 1),
            lambda: admin.get_policies(b"public/default"),
            lambda: admin.set_policy(TOPIC, ["message_ttl_seconds"], 1),
            lambda: admin.remove_policies(TOPIC, ["message_ttl_seconds"]),
        ):
            with pytest.raises((ValueError, InvalidTopicName)):
                no_text()
    assert broker.requests() == []


def test_what_the_broker_says_of_a_topic_is_no_policy_of_it(admin, layout):
    BrokerDouble(layout).commit_round(
        [
            {"kind": "policy", "topic": TOPIC, "properties": [pair]}
            for pair in ((BACKLOG_EXCEEDED, "true"), ("message_ttl_seconds", "1"))
        ]
    )
    assert admin.get_policies(TOPIC) == {"message_ttl_seconds": "1"}


def test_the_command_line_removes_one(admin, layout):
    with PlainBroker(layout.root) as broker:
        done = CliRunner().invoke(
            app,
            ["policies", "remove", "public/default", "message_ttl_seconds", "--root", str(layout.root)],
            catch_exceptions=False,
        )
    assert (done.exit_code, done.stdout) == (0, "removed message_ttl_seconds\n")
    assert [said(request) for request in broker.requests()] == [
        {"name": "message_ttl_seconds", "namespace": "public/default"}
    ]
