"""A root or a topic of an older or a newer layout that is read, changed, or not refused by name."""

from pathlib import Path

import pytest

import pulsar_spark as pulsar
from pulsar_spark import frames
from pulsar_spark.admin import Admin
from pulsar_spark.admin.upkeep import optimize, trim
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.broker.runner import Broker
from pulsar_spark.errors import NewerLayout, OlderLayout
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import topics
from pulsar_spark.storage.topics.topics import create_topic, prepare_root, read_topic
from pulsar_spark.table_specs import LAYOUT_VERSION
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views import create_views

TOPIC = "persistent://public/default/t"
OTHERS = {
    "older": (LAYOUT_VERSION - 1, OlderLayout, "read it with the release that wrote it, and publish .* a new root"),
    "newer": (LAYOUT_VERSION + 1, NewerLayout, "install a newer pulsar_spark"),
}


def files(layout: Layout) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in layout.root.rglob("*") if path.is_file() and path.suffix != ".lock"
    }


def make_other(folder: Path, version: int) -> None:
    """Let the tables in *folder* be of another layout."""
    for commit in folder.rglob(f"{0:020d}.json"):
        commit.write_text(
            commit.read_text().replace(f'layout_version\\": {LAYOUT_VERSION}', f'layout_version\\": {version}')
        )
    topics._checked.clear()


WITH_A_ROOT = {
    "client": lambda admin: pulsar.Client(f"delta:{admin.layout.root}"),
    "list_topics": lambda admin: admin.list_topics("public/default"),
    "create_topic": lambda admin: admin.create_topic("made-now"),
    "delete_topic": lambda admin: admin.delete_topic(TOPIC),
    "mend": lambda admin: admin.mend(TOPIC),
    "describe": lambda admin: admin.describe(TOPIC),
    "stats": lambda admin: admin.stats(TOPIC),
    "peek": lambda admin: admin.peek_messages(TOPIC, "s", 1),
    "skip_lost": lambda admin: admin.skip_lost(TOPIC, "s"),
    "set_policy": lambda admin: admin.set_policy("public/default", "message_ttl_seconds", 1),
    "trim": lambda admin: trim(admin.layout, TOPIC, None),
    "optimize": lambda admin: optimize(admin.layout, TOPIC, None),
    "doctor": lambda admin: admin.doctor(),
    "repair": lambda admin: admin.repair(),
    "broker_status": lambda admin: admin.broker_status(),
    "prepare_root": lambda admin: prepare_root(admin.layout),
    "broker": lambda admin: PlainBroker(admin.layout.root).__enter__(),
}


@pytest.mark.parametrize("use", WITH_A_ROOT.values(), ids=WITH_A_ROOT)
@pytest.mark.parametrize("version, error, text", OTHERS.values(), ids=OTHERS)
def test_a_root_of_another_layout_is_refused_whatever_is_asked(layout, version, error, text, use):
    create_topic(layout, TOPIC)
    make_other(layout.root, version)
    before = files(layout)
    with pytest.raises(error, match=f"layout {version}, this release reads layout {LAYOUT_VERSION} alone: {text}"):
        use(Admin(f"delta:{layout.root}"))
    assert files(layout) == before


@pytest.mark.parametrize("version, error, text", OTHERS.values(), ids=OTHERS)
def test_a_topic_of_another_layout_is_refused_and_the_others_are_served(layout, version, error, text):
    create_topic(layout, "mine")
    make_other(create_topic(layout, TOPIC).path, version)
    admin = Admin(f"delta:{layout.root}")
    with pytest.raises(error, match=text):
        read_topic(layout, TOPIC)
    [found] = admin.doctor()
    assert (found["kind"], found["table"]) == ("definition", TOPIC) and found["command"] in found["text"]
    client = pulsar.Client(f"delta:{layout.root}")
    with PlainBroker(layout.root):
        consumer = client.subscribe("mine", "s")
        client.create_producer("mine").send(b"served")
        assert consumer.receive(60_000).data() == b"served"
        with pytest.raises(error, match=text):
            client.create_producer(TOPIC)
        client.close()


def test_a_split_keeps_the_layout(layout):
    create_topic(layout, TOPIC)
    split_bundle(layout)
    assert read_topic(layout, TOPIC) and Admin(f"delta:{layout.root}").doctor() == []


def test_spark_refuses_a_root_of_another_layout(spark, layout):
    version, error, text = OTHERS["older"]
    create_topic(layout, TOPIC)
    make_other(layout.root, version)
    frame = spark.createDataFrame([("x",)], "payload string")
    for use in (
        lambda: create_views(spark, layout.root),
        lambda: frames.publish(frame, layout.root, TOPIC),
        lambda: frames.consume(spark, layout.root, TOPIC, "s", print),
        lambda: frames.dead_letters(spark, layout.root, TOPIC, subscription="s"),
        lambda: frames.sent_letters(spark, layout.root),
        lambda: frames.stats(spark, layout.root),
        lambda: Broker(spark.newSession(), layout.root).start(),
    ):
        with pytest.raises(error, match=text):
            use()
