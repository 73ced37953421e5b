"""Deduplication as a policy: by command, and since which round it holds."""

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.policies.policies import DEDUPLICATION, deduplication_since
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.commands import say
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def run(layout, *arguments: str) -> str:
    return say(layout.root, *arguments)


def test_by_command(layout):
    Admin(f"delta:{layout.root}").create_topic("t")
    with PlainBroker(layout.root):
        for group, scope in (("namespaces", "public/default"), ("topics", "t")):
            assert run(layout, group, "get-deduplication", scope) == "not set\n"
            run(layout, group, "set-deduplication", scope, "--enable")
            assert run(layout, group, "get-deduplication", scope) == "on\n"
            assert Admin(f"delta:{layout.root}").stats("t")["deduplicationStatus"] == "Enabled"
            run(layout, group, "set-deduplication", scope, "-d")
            assert run(layout, group, "get-deduplication", scope, "--json") == "false\n"
            run(layout, group, "remove-deduplication", scope)
            assert run(layout, group, "get-deduplication", scope, "--json") == "null\n"
        with pytest.raises(InvalidConfiguration, match="neither on nor off"):
            run(layout, "topics", "set-deduplication", "t")
    with pytest.raises(ValueError, match="enabled"):
        Admin(f"delta:{layout.root}").set_deduplication("public/default", "yes")


def test_it_holds_since_it_was_last_switched_on(tmp_path):
    engine, found = new_engine(None, tmp_path / "root"), []
    engine.create_topic(TOPIC)
    for value in (1, 1, 0, 1, None, 1):
        engine.round([ON.policy(DEDUPLICATION, value)], 0)
        found.append(deduplication_since(engine.latest.policies, TOPIC))
    assert found == [1, 1, None, 4, None, 6]
    engine.restart(0)
    engine.round([ON.policy(DEDUPLICATION, 1)], 0)
    assert deduplication_since(engine.latest.policies, TOPIC) == 6
