"""Policies as an administrator sets them: by name or by verb, together or not at all."""
import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.policies import BACKLOG_EXCEEDED, POLICIES
from tests.admin.broker_double import BrokerDouble

TOPIC = "persistent://public/default/orders"


@pytest.fixture
def admin(layout) -> Admin:
    admin = Admin(f"delta:{layout.root}", timeout_seconds=20)
    admin.create_topic(TOPIC)
    return admin


def test_verbs_ask_for_their_policies_in_one_commit(admin, layout):
    with BrokerDouble(layout) as broker:
        admin.set_message_ttl("public/default", 60)
        admin.set_backlog_quota(TOPIC, limit_size=1000, policy="consumer_backlog_eviction")
        admin.set_retention(TOPIC, -1, 0)
    assert [(request["topic"], dict(request["properties"])) for request in broker.asked] == [
        (None, {"name": "message_ttl_seconds", "value": "60", "namespace": "public/default"}),
        (TOPIC, {"name": "backlog_quota_policy", "value": "consumer_backlog_eviction"}),
        (TOPIC, {"name": "backlog_quota_bytes", "value": "1000"}),
        (TOPIC, {"name": "backlog_quota_seconds", "value": "0"}),
        (TOPIC, {"name": "retention_seconds", "value": "-1"}),
        (TOPIC, {"name": "retention_bytes", "value": "0"})]


def test_a_policy_set_to_nothing_gets_its_default(admin, layout):
    with BrokerDouble(layout) as broker:
        for name in POLICIES:
            admin.set_policy(TOPIC, name, None)
    assert [dict(request["properties"]) for request in broker.asked] == [{"name": name, "value": str(POLICIES[name])} for name in POLICIES]


def test_wrong_values_are_not_sent(admin, layout):
    with BrokerDouble(layout) as broker:
        for wrong in (lambda: admin.set_backlog_quota(TOPIC, 1, policy="drop"), lambda: admin.set_backlog_quota(TOPIC, -1),
                      lambda: admin.set_retention(TOPIC, -2, 0), lambda: admin.set_message_ttl(TOPIC, "1h"),
                      lambda: admin.set_policy(TOPIC, "colour", None), lambda: admin.set_policy(TOPIC, BACKLOG_EXCEEDED, "true")):
            with pytest.raises(InvalidConfiguration):
                wrong()
    assert broker.asked == []


def test_what_the_broker_says_of_a_topic_is_no_policy_of_it(admin, layout):
    BrokerDouble(layout).commit_round([{"kind": "policy", "topic": TOPIC, "properties": [pair]}
                                       for pair in ((BACKLOG_EXCEEDED, "true"), ("message_ttl_seconds", "1"))])
    assert admin.get_policies(TOPIC) == {"message_ttl_seconds": "1"}
