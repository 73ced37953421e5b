"""Verbs of pulsar-admin and pulsar-client that look or clean up: a wrong answer, and what is lost by mistake, are seen
here."""

import json

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.cli.policies import policy_verbs
from pulsar_spark.errors import (
    InvalidConfiguration,
    NamespaceNotFound,
    NotAllowedError,
    ServiceUnitNotReady,
    TopicNotFound,
)
from pulsar_spark.protocol.topics.message_id import MessageId, parse_message_id
from tests.support.commands import say
from tests.support.waiting import DEADLINE_SECONDS, send

TOPIC = "persistent://public/default/t"


@pytest.fixture
def admin(pulsar_service_url) -> Admin:
    return Admin(pulsar_service_url)


def test_the_last_message_id(admin, pulsar_root, pulsar_client):
    producer = pulsar_client.create_producer("t")
    assert admin.last_message_id("t") == MessageId.earliest
    assert say(pulsar_root, "topics", "last-message-id", "t") == "no messages\n"
    sent = [producer.send(b"x") for _ in range(2)][-1]
    assert admin.last_message_id("t") == sent
    found = json.loads(say(pulsar_root, "topics", "last-message-id", "t", "--json"))
    assert parse_message_id(found["lastMessageId"]) == sent
    admin.create_partitioned_topic("p", 2)
    with pytest.raises(NotAllowedError, match="ask for the last message of one partition"):
        admin.last_message_id("p")
    assert admin.last_message_id("p-partition-1") == MessageId.earliest


def test_stats_of_topics_are_those_of_stats(admin, pulsar_root, pulsar_client):
    pulsar_client.create_producer("t").close()
    assert say(pulsar_root, "topics", "stats", "t") == say(pulsar_root, "stats", "t")


def test_truncate(admin, pulsar_broker, pulsar_root, pulsar_client):
    for name in ("s", "other"):
        pulsar_client.subscribe("t", name, pulsar.ConsumerType.Shared).close()
    send(pulsar_client, "t", *"abcd")
    pulsar_broker.settle()
    with pytest.raises(NotAllowedError, match="topic 't' has 4 messages, which would be lost: give --yes to truncate"):
        say(pulsar_root, "topics", "truncate", "t")
    (found,) = json.loads(say(pulsar_root, "topics", "truncate", "t", "--yes", "--json"))
    assert (found["topic"], found["first_position"], found["files"]) == (TOPIC, 3, 3)
    stats = admin.stats("t")
    assert {each["msgBacklog"] for each in stats["subscriptions"].values()} == {0}
    assert stats["msgInCounter"] == 1, "the newest publish stays"
    consumer = pulsar_client.subscribe("t", "s", pulsar.ConsumerType.Shared)
    send(pulsar_client, "t", "after")
    assert consumer.receive(DEADLINE_SECONDS * 1000).data() == b"after"
    admin.create_partitioned_topic("p", 2)
    assert [each["first_position"] for each in admin.truncate("p")] == [0, 0]


def test_lookup_and_brokers(admin, pulsar_broker, pulsar_root):
    admin.create_topic("t")
    found = admin.lookup("t")
    assert (found["topic"], found["bundle"]) == (TOPIC, "0x00000000_0xffffffff")
    (broker,) = admin.brokers()
    assert found["broker"] == broker["broker"] and broker["bundles"] == [found["bundle"]]
    assert "served by " + broker["broker"] in say(pulsar_root, "topics", "lookup", "t")
    assert json.loads(say(pulsar_root, "topics", "lookup", "t", "--json")) == found
    assert json.loads(say(pulsar_root, "brokers", "list", "--json")) == [broker]
    assert say(pulsar_root, "brokers", "healthcheck").startswith("ok: answered in ")
    assert json.loads(say(pulsar_root, "brokers", "healthcheck", "--json"))["healthy"]
    with pytest.raises(TopicNotFound):
        admin.lookup("nothing")


def test_a_root_without_a_broker(layout):
    admin = Admin(f"delta:{layout.root}")
    admin.create_topic("t")
    assert (admin.brokers(), admin.lookup("t")["broker"]) == ([], None)
    assert "served by no broker" in say(layout.root, "topics", "lookup", "t")
    assert say(layout.root, "brokers", "list") == "no broker serves\n"
    with pytest.raises(ServiceUnitNotReady, match="no broker serves 0x00000000_0xffffffff: start one"):
        say(layout.root, "brokers", "healthcheck")


def test_tenants_and_namespaces(admin, pulsar_root):
    assert admin.tenants() == ["public"]
    say(pulsar_root, "tenants", "create", "acme")
    assert json.loads(say(pulsar_root, "tenants", "list", "--json")) == ["acme", "public"]
    assert admin.namespaces("acme") == []
    with pytest.raises(NotAllowedError, match="exists already"):
        admin.create_tenant("acme")
    admin.create_topic("acme/sales/t")
    admin.set_message_ttl("acme/sales", 5)
    with pytest.raises(NotAllowedError, match="has namespaces"):
        say(pulsar_root, "tenants", "delete", "acme")
    with pytest.raises(NotAllowedError, match="has 1 topic, such as 'persistent://acme/sales/t'"):
        say(pulsar_root, "namespaces", "delete", "acme/sales")
    say(pulsar_root, "namespaces", "delete", "acme/sales", "--force")
    assert (admin.namespaces("acme"), admin.list_topics()) == ([], [])
    admin.create_namespace("acme/sales")
    assert admin.get_policies("acme/sales") == {}
    admin.delete_namespace("acme/sales")
    say(pulsar_root, "tenants", "delete", "acme")
    assert admin.tenants() == ["public"]
    with pytest.raises(NamespaceNotFound, match="did you mean 'public'"):
        admin.delete_tenant("publik")
    with pytest.raises(NamespaceNotFound):
        admin.delete_namespace("acme/sales")
    with pytest.raises(NotAllowedError, match="always exists"):
        admin.delete_namespace("public/default", force=True)


def test_read(pulsar_root, pulsar_client, tmp_path):
    sent = [pulsar_client.create_producer("t").send(value) for value in (b"a", b"b", b"c")]
    output = tmp_path / "payloads"
    text = say(pulsar_root, "read", "t", "-m", "earliest", "-n", "2", "--json", "-o", str(output))
    assert [json.loads(line)["messageId"] for line in text.splitlines()] == [str(each) for each in sent[:2]]
    assert output.read_bytes() == b"a\nb\n"
    assert str(sent[2]) in say(pulsar_root, "read", "t", "-m", str(sent[1]))
    assert str(sent[1]) in say(pulsar_root, "read", "t", "-m", str(sent[1]), "-i")
    assert say(pulsar_root, "read", "t", "-n", "0", "--timeout", "0.1") == "", "after the latest"
    with pytest.raises(TopicNotFound):
        say(pulsar_root, "read", "nothing")


GIVEN = {
    "message-ttl": (["-ttl", "10m"], {"message_ttl_seconds": "600"}, "600 s"),
    "retention": (
        ["-t", "-1", "-s", "10G"],
        {"retention_seconds": "-1", "retention_bytes": str(10 << 30)},
        "retention_seconds: -1 s\nretention_bytes: 10737418240 bytes",
    ),
    "backlog-quota": (
        ["-l", "1K", "--policy", "producer_exception"],
        {"backlog_quota_bytes": "1024", "backlog_quota_seconds": "0", "backlog_quota_policy": "producer_exception"},
        "backlog_quota_bytes: 1024 bytes\nbacklog_quota_seconds: 0 s\nbacklog_quota_policy: producer_exception",
    ),
    "subscription-expiration-time": (["-t", "5"], {"subscription_expiration_minutes": "5"}, "5 min"),
    "max-unacked-messages-per-consumer": (["-c", "7"], {"max_unacked_messages_per_consumer": "7"}, "7 msgs"),
    "max-unacked-messages-per-subscription": (["-c", "8"], {"max_unacked_messages_per_subscription": "8"}, "8 msgs"),
    "max-consumers-per-subscription": (["-c", "9"], {"max_consumers_per_subscription": "9"}, "9"),
    "max-message-size": (["-m", "1M"], {"max_message_size": str(1 << 20)}, "1048576 bytes"),
    "schema-compatibility-strategy": (["-c", "FULL"], {"schema_compatibility_strategy": "FULL"}, "FULL"),
    "is-allow-auto-update-schema": (["--disable"], {"is_allow_auto_update_schema": "0"}, "off"),
    "schema-validation-enforce": (["--enable"], {"schema_validation_enforced": "1"}, "on"),
}
"""What is given to the verb ``set-``, what it sets, and what ``get-`` shows."""


@pytest.mark.parametrize(
    "group, scope, verbs",
    [("namespaces", "public/default", ["retention", "is-allow-auto-update-schema"]), ("topics", "t", ["message-ttl"])],
)
def test_policy_verbs(admin, pulsar_root, group, scope, verbs):
    admin.create_topic("t")
    for verb in verbs:
        options, policies, shown = GIVEN[verb]
        assert say(pulsar_root, group, f"get-{verb}", scope).startswith(("not set", f"{[*policies][0]}: not set"))
        assert say(pulsar_root, group, f"set-{verb}", scope, *options).startswith(f"set {verb}")
        assert json.loads(say(pulsar_root, group, f"get-{verb}", scope, "--json")) == policies
        assert say(pulsar_root, group, f"get-{verb}", scope) == f"{shown}\n"
        say(pulsar_root, group, f"remove-{verb}", scope)
        assert admin.get_policies(scope if group == "namespaces" else TOPIC) == {}


def test_all_policy_verbs(monkeypatch):
    asked = {}
    monkeypatch.setattr(policy_verbs, "admin", lambda *_: FakeAdmin(asked))
    for verb, (options, policies, shown) in GIVEN.items():
        say("root", "namespaces", f"set-{verb}", "public/default", *options)
        assert asked == policies, verb
        assert say("root", "namespaces", f"get-{verb}", "public/default") == f"{shown}\n"
        say("root", "namespaces", f"remove-{verb}", "public/default")
        assert asked == {}, verb
    assert GIVEN.keys() == policy_verbs.VERBS.keys()


class FakeAdmin:
    """Keeps policies in *policies*."""

    def __init__(self, policies: dict[str, str]):
        self.policies = policies

    def set_policies(self, scope, policies):
        self.policies.update(policies)

    def get_policies(self, scope):
        return self.policies

    def remove_policies(self, scope, *names):
        for name in names:
            del self.policies[name]

    def effective_policy(self, scope, name):
        return "60"


@pytest.mark.parametrize(
    "verb, options",
    [
        ("message-ttl", ["-ttl", "soon"]),
        ("message-ttl", ["-ttl", "500ms"]),
        ("max-message-size", ["-m", "big"]),
        ("is-allow-auto-update-schema", []),
    ],
)
def test_policy_verbs_refuse(pulsar_root, verb, options):
    with pytest.raises(InvalidConfiguration, match="give"):
        say(pulsar_root, "namespaces", f"set-{verb}", "public/default", *options)


def test_getters_of_policies(admin):
    assert admin.get_message_ttl("public/default") is None and admin.get_retention("public/default") is None
    admin.set_policies("public/default", {"message_ttl_seconds": 5, "retention_bytes": -1})
    assert admin.get_message_ttl("public/default") == 5
    assert admin.get_retention("public/default") == {"retention_seconds": None, "retention_bytes": -1}
    admin.remove_message_ttl("public/default")
    admin.remove_retention("public/default")
    assert admin.get_policies("public/default") == {}
