"""Delayed delivery as a policy: off, messages are delivered at once (conformance delayed_policy_off); what of it means
nothing here is refused or kept."""

import json

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.errors import InvalidConfiguration, TopicNotFound
from pulsar_spark.testing.plain_broker import PlainBroker, said
from tests.support.commands import say
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
HOUR = 3_600_000


def asked_policies(broker) -> list[tuple]:
    found = [said(request) for request in broker.requests()]
    return [(each["name"], each.get("value"), each.get("namespace")) for each in found]


def test_what_is_asked(layout):
    admin = Admin(f"delta:{layout.root}", timeout_seconds=20)
    with PlainBroker(layout.root) as broker:
        admin.set_delayed_delivery("public/default", False, 1000, 0)
        admin.set_delayed_delivery("public/default", True, max_delay_ms=5000)
        admin.remove_delayed_delivery("public/default")
    assert asked_policies(broker) == [
        ("delayed_delivery_active", "0", "public/default"),
        ("delayed_delivery_tick_ms", "1000", "public/default"),
        ("delayed_delivery_max_delay_ms", "0", "public/default"),
        ("delayed_delivery_active", "1", "public/default"),
        ("delayed_delivery_tick_ms", "1000", "public/default"),
        ("delayed_delivery_max_delay_ms", "5000", "public/default"),
        ("delayed_delivery_active", None, "public/default"),
        ("delayed_delivery_tick_ms", None, "public/default"),
        ("delayed_delivery_max_delay_ms", None, "public/default"),
    ]


def run(layout, *arguments: str) -> str:
    return say(layout.root, *arguments)


@pytest.mark.parametrize("group, scope", [("namespaces", "public/default"), ("topics", "t")])
def test_by_command(layout, group, scope):
    Admin(f"delta:{layout.root}").create_topic("t")
    with PlainBroker(layout.root) as broker:
        assert run(layout, group, "get-delayed-delivery", scope) == "not set\n"
        run(layout, group, "set-delayed-delivery", scope, "--disable", "--time", "2m")
        assert run(layout, group, "get-delayed-delivery", scope) == "off, tick 120000 ms\n"
        run(layout, group, "set-delayed-delivery", scope, "-e")
        shown = json.loads(run(layout, group, "get-delayed-delivery", scope, "--json"))
        assert shown == {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 0}
        run(layout, group, "set-delayed-delivery", scope, "-e", "--max-delay", "1h")
        assert run(layout, group, "get-delayed-delivery", scope) == "on, tick 1000 ms, at most 3600000 ms\n"
        run(layout, group, "remove-delayed-delivery", scope)
        assert run(layout, group, "get-delayed-delivery", scope, "--json") == "null\n"
    assert [said(each).get("value") for each in broker.requests()] == [
        *("0", "120000", "0"),
        *("1", "1000", "0"),
        *("1", "1000", "3600000"),
        *(None, None, None),
    ]
    for options in ((), ("-e", "--time", "soon"), ("-e", "--time", "0")):
        with pytest.raises(InvalidConfiguration):
            run(layout, group, "set-delayed-delivery", scope, *options)


@pytest.mark.parametrize(
    "arguments, error",
    [
        ((1,), ValueError),
        (("true",), ValueError),
        ((True, 0), InvalidConfiguration),
        ((True, -5), InvalidConfiguration),
        ((True, "1"), InvalidConfiguration),
        ((True, 1000, -1), InvalidConfiguration),
        ((True, 1000, "0"), ValueError),
    ],
)
def test_what_is_refused(layout, arguments, error):
    with pytest.raises(error):
        Admin(f"delta:{layout.root}", timeout_seconds=0).set_delayed_delivery("public/default", *arguments)
    with pytest.raises(TopicNotFound):
        Admin(f"delta:{layout.root}", timeout_seconds=0).set_delayed_delivery(TOPIC, True)


@pytest.mark.parametrize("scope", ["namespace", "topic"])
def test_off_is_at_once_and_on_again_waits(tmp_path, scope):
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)

    def active(value):
        row = ON.policy("delayed_delivery_active", value)
        return (
            row
            if scope == "topic"
            else row | {"topic": None, "properties": row["properties"] | {"namespace": "public/default"}}
        )

    engine.round([ON.subscribe("A", lease_ms=2 * HOUR), ON.flow("A", 10), active("0")], 0)
    assert Admin(f"delta:{tmp_path}").get_delayed_delivery(TOPIC if scope == "topic" else "public/default") == {
        "active": False,
        "tickTime": 1000,
        "maxDeliveryDelayInMillis": 0,
    }
    engine.publish(TOPIC, -1, [1, 1], deliver_at_ms=[HOUR, None])
    assert [delivery.position for delivery in engine.round([], 1)["deliveries"]] == [0, 1]
    engine.round([active("1")], 2)
    engine.publish(TOPIC, -1, [1, 1], deliver_at_ms=[HOUR, None])
    assert [delivery.position for delivery in engine.round([], 3)["deliveries"]] == [3]
    assert [delivery.position for delivery in engine.round([], HOUR)["deliveries"]] == [2]
