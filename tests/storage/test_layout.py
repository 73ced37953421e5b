"""Which names can exist: what is asked for under another is refused by name, and what exists goes on."""

import os

import pytest

from pulsar_spark.errors import InvalidTopicName, InvalidUrl, TopicNotFound
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.table_lock import append_lock
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import LOCK, MAX_TABLE_NAME, STAGED, Layout, beside, encode_name
from pulsar_spark.storage.store.root import MAX_ROOT_BYTES
from pulsar_spark.storage.topics.topics import create_topic, delete_topic, list_topics, read_topic, resolve_topic
from pulsar_spark.table_specs import MESSAGES

LONGEST = {
    "small": "a" * 200,
    "capitals": "A" * 82 + "a",
    "accents": "é" * 41 + "a",
    "three bytes": "語" * 27 + "aaaa",
    "underlines": "_" * 123 + "a",
    "dots": "." + "a." * 99,
    "colons": ":" * 82 + "a",
}


@pytest.mark.local_disk
@pytest.mark.parametrize("local_name", LONGEST.values(), ids=LONGEST)
def test_the_longest_names_there_are(layout, local_name):
    """Whatever the name is made of, there is room for its lock and for what Spark stages."""
    topic = create_topic(layout, local_name)
    assert len(topic.path.name) <= MAX_TABLE_NAME
    AppendTable(topic.path).append(MESSAGES.schema.empty_table())
    for suffix in (LOCK, STAGED):
        beside(topic.path, suffix).mkdir(exist_ok=True) if suffix == STAGED else beside(topic.path, suffix).touch()
    assert [found.name.local_name for found in list_topics(layout, "public", "default")] == [local_name]
    delete_topic(layout, local_name)


@pytest.mark.local_disk
@pytest.mark.parametrize(
    "local_name, too_many",
    [
        ("A" * 83, 2),
        ("A" * 84, 5),
        ("A" * 85, 8),
        ("A" * 200, 353),
        ("é" * 42, 5),
        ("語" * 28, 5),
        ("_" * 124, 1),
        ("a" * 201, 1),
        ("a" * 5000, 4800),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_says_by_how_much(layout, local_name, too_many):
    before = sorted(layout.root.rglob("*"))
    for ask in (create_topic, lambda *name: resolve_topic(*name, create=True)):
        with pytest.raises(InvalidTopicName, match=rf"\b{too_many} too many"):
            ask(layout, local_name)
    assert sorted(layout.root.rglob("*")) == before


@pytest.mark.local_disk
@pytest.mark.parametrize("name", [f"{'T' * 86}/n/t", f"t/{'N' * 86}/t"])
def test_long_tenants_and_namespaces(layout, name):
    with pytest.raises(InvalidTopicName, match="3 too many"):
        create_topic(layout, name)
    create_topic(layout, name.replace("TT", "T", 1).replace("NN", "N", 1))


def test_the_longest_names_have_room_below_the_deepest_root(tmp_path):
    deep = tmp_path
    while len(os.fsencode(deep)) < MAX_ROOT_BYTES - 250:
        deep = deep / ("d" * 200)
    layout = Layout(deep / ("d" * (MAX_ROOT_BYTES - 1 - len(os.fsencode(deep)))))
    tenant, namespace, name = "T" * 85, "N" * 85, "T" * 82 + "t"
    topic = create_topic(layout, f"{tenant}/{namespace}/{name}", 2)
    rows = MESSAGES.rows([dict(publish_id="p", entry_id=0, batch_size=1, partition=1, publish_time=0)])
    assert AppendTable(topic.path).append(rows) == 1
    assert layout.namespaces() == [(tenant, namespace)]
    with pytest.raises(InvalidUrl, match="too long"):
        Layout(f"{layout.root}d")


def test_a_topic_of_a_name_as_long_as_may_be_has_partitions(layout):
    name = "a" * 200
    create_topic(layout, name, 3)
    topic, partitions = resolve_topic(layout, f"{name}-partition-2")
    assert (str(topic.name), partitions) == (str(parse_topic_name(name)), [2])
    with pytest.raises(TopicNotFound):
        resolve_topic(layout, f"{name}-partition-3")


@pytest.mark.local_disk
@pytest.mark.parametrize("capitals", [83, 84, 85])
def test_a_table_made_before_the_bound_works(layout, capitals):
    """249 to 255 bytes: it is read, appended to and deleted."""
    name = parse_topic_name("A" * capitals)
    path = layout.topic(name)
    assert len(encode_name(name.local_name)) > MAX_TABLE_NAME
    create_table(path, MESSAGES, {"topic": str(name), "partitions": 0})
    topic = read_topic(layout, name)
    assert AppendTable(topic.path).append(MESSAGES.schema.empty_table()) == 1
    with append_lock(path):
        assert resolve_topic(layout, name, create=True) == (topic, [-1])
    delete_topic(layout, name)
    assert list_topics(layout, "public", "default") == []
