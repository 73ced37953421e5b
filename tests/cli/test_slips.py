"""A slip in a name makes nothing: what does not exist is refused, with what was perhaps meant."""

import json
import re

import pytest
from typer.testing import CliRunner

from pulsar_spark.admin import Admin
from pulsar_spark.cli import app
from pulsar_spark.errors import InvalidRequest, NotAllowedError, NotARoot, SubscriptionNotFound, TopicNotFound
from pulsar_spark.frames import consume
from pulsar_spark.protocol.policies.policies import POLICIES
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.testing.plain_broker import PlainBroker, said
from tests.support.commands import say

NAMESPACE = "did you mean 'public/default'"
TOPIC = "did you mean 'persistent://public/default/flights'"


@pytest.fixture
def made(layout):
    for name in ("flights", "acme/shop/orders"):
        create_topic(layout, name)
    return layout.root


def names(made) -> list[str]:
    """All that a slip could have made."""
    admin = Admin(f"delta:{made}")
    return [*admin.namespaces(), *(topic["topic"] for topic in admin.list_topics())]


REFUSED = {
    "policies set public/defualt message_ttl_seconds 5": NAMESPACE,
    "policies remove public/defualt message_ttl_seconds": NAMESPACE,
    "policies get public/defualt": NAMESPACE,
    "policies set fligths message_ttl_seconds 5": TOPIC,
    "policies get fligths": TOPIC,
    "policies set flights mesage_ttl_seconds 5": "did you mean 'message_ttl_seconds'",
    "namespaces set-deduplication public/defualt --enable": NAMESPACE,
    "namespaces set-delayed-delivery acme/shpo --enable": "did you mean 'acme/shop'",
    "namespaces set-compaction-threshold public/defualt --threshold 1K": NAMESPACE,
    "namespaces set-deduplication flights --enable": "not of the form 'tenant/namespace'",
    "topics set-deduplication fligths --enable": TOPIC,
    "topics update fligths --partitions 3": TOPIC,
    "topics delete fligths": TOPIC,
    "topics delete acme/shpo/orders": "did you mean 'persistent://acme/shop/orders'",
    "stats orders": "did you mean 'persistent://acme/shop/orders'",
    "subscriptions create fligths -s s": TOPIC + r"\?\. With --create it is created",
    "subscriptions seek fligths -s s --to earliest": TOPIC,
    "consume fligths -s s": TOPIC + r"\?\. With --create it is created",
    "compact fligths": TOPIC,
    "delayed list Flight": TOPIC,
    "schemas get flights-partition-0": TOPIC,
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_a_slip_names_is_refused_and_not_made(made, command):
    before = names(made)
    with pytest.raises(InvalidRequest, match=REFUSED[command]):
        say(made, *command.split())
    assert names(made) == before


def test_a_consumer_of_frames_makes_no_topic_unless_it_is_told_to(made, monkeypatch):
    monkeypatch.setattr(
        "pulsar_spark.frames.consuming.consumer.layout_for_frames", lambda spark, made: layout_of_root(made)
    )
    before = names(made)
    with pytest.raises(TopicNotFound, match=TOPIC + r"\?\. With create=True it is created"):
        consume(None, made, "fligths", "s", print)
    assert names(made) == before


def layout_of_root(made):
    from pulsar_spark.storage.layout import Layout

    return Layout(made)


def test_an_administrator_makes_no_topic_for_a_subscription_unless_told_to(made):
    with PlainBroker(made):
        admin = Admin(f"delta:{made}", timeout_seconds=60)
        with pytest.raises(TopicNotFound, match=TOPIC):
            admin.create_subscription("fligths", "s")
        admin.create_subscription("other", "s", create=True)
        with pytest.raises(SubscriptionNotFound, match="did you mean 's'"):
            admin.skip_messages("other", "S", 1)
        with pytest.raises(SubscriptionNotFound, match="did you mean 's'"):
            admin.skip_lost("other", "S")
    assert admin.subscriptions("other") == ["s"]


def test_a_namespace_that_is_reset_exists_afterwards(made):
    admin = Admin(f"delta:{made}", timeout_seconds=60)
    admin.reset_namespace("acme/new")
    assert "acme/new" in admin.namespaces() and admin.topics("acme/new") == []


def test_a_policy_makes_no_root(tmp_path):
    with pytest.raises(NotARoot):
        say(tmp_path / "rooot", "policies", "set", "public/default", "message_ttl_seconds", "5")
    assert list(tmp_path.iterdir()) == []


def test_what_is_made_without_being_asked_for_by_name_is_said(made):
    assert "published to new, which is a new topic" in say(made, "produce", "new", "x")
    assert "new topic" not in say(made, "produce", "new", "x")
    assert say(made, "topics", "create", "a/b/c") == "created a/b/c in the new namespace a/b\n"
    assert say(made, "topics", "create", "a/b/d") == "created a/b/d\n"
    assert json.loads(say(made, "topics", "create", "a/c/d", "--json"))["isNewNamespace"]


def test_a_list_of_a_namespace_that_is_not_there_says_so_beside(made):
    done = CliRunner().invoke(app, ["topics", "list", "public/defualt", "--json", "--root", str(made)])
    assert (done.exit_code, done.stdout) == (0, "[]\n") and NAMESPACE in done.stderr


def test_a_topic_is_named_shortly_for_its_policies_too(made):
    with PlainBroker(made) as broker:
        for name in ("flights", "public/default/flights", "persistent://public/default/flights"):
            assert say(made, "policies", "set", name, "max_consumers_per_subscription", "3") == (
                "set max_consumers_per_subscription\n"
            )
            assert json.loads(say(made, "policies", "get", name, "--json")) == {"max_consumers_per_subscription": "3"}
    assert {request.topic for request in broker.requests()} == {"persistent://public/default/flights"}
    assert said(broker.requests()[0]) == {"name": "max_consumers_per_subscription", "value": "3"}


def test_when_a_quota_takes_effect_is_said(made):
    with PlainBroker(made):
        every = "takes effect at the next check of the broker, every"
        assert f"{every} 60 s" in say(made, "policies", "set", "flights", "backlog_quota_bytes", "1")
        say(made, "policies", "set", "public/default", "ttl_check_seconds", "300")
        assert f"{every} 5 min" in say(made, "policies", "set", "flights", "message_ttl_seconds", "1")
        assert "maintain trim" in say(made, "policies", "set", "broker", "retention_seconds", "1")


def test_a_policy_is_one_line_of_eighty_columns():
    lines = CliRunner().invoke(app, ["policies", "list"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(POLICIES)
    assert all(len(line) <= 80 and line.split()[1] == str(POLICIES[line.split()[0]]) for line in lines)
    assert "message_ttl_seconds 0 s then messages expire" in [" ".join(line.split()) for line in lines]
    listed = json.loads(CliRunner().invoke(app, ["policies", "list", "--json"]).stdout)
    assert all(each["text"] and {"values", "unit", "default"} <= each.keys() for each in listed)


def test_a_command_that_does_not_exist_is_perhaps_another():
    for slip, meant in ((["polices", "list"], "policies"), (["topics", "lst"], "list")):
        done = CliRunner().invoke(app, slip)
        assert done.exit_code == 2 and re.search(f"Did you mean .*'{meant}'", done.output)


@pytest.mark.parametrize("is_given", [False, True])
def test_a_topic_that_has_subscriptions_is_deleted_only_with_yes(made, is_given):
    say(made, "produce", "flights", "x")
    with PlainBroker(made):
        Admin(f"delta:{made}", timeout_seconds=60).create_subscription("flights", "s", "earliest")
    if not is_given:
        lost = r"'flights' has 1 message and 1 subscription \(s\), which would be lost: give --yes"
        with pytest.raises(NotAllowedError, match=lost):
            say(made, "topics", "delete", "flights")
    else:
        assert say(made, "topics", "delete", "flights", "--yes") == "deleted flights\n"
    assert ("persistent://public/default/flights" in names(made)) is not is_given
    say(made, "produce", "acme/shop/orders", "x")
    assert say(made, "topics", "delete", "acme/shop/orders") == "deleted acme/shop/orders\n"
