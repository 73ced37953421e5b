"""Rows somebody else writes to a topic's table, and commits nobody can read: refused by Delta, or passed over and
named, or they stop that topic alone."""

import json
import os

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import NEVER_NULL, create_topic, read_topic
from pulsar_spark.table_specs import MESSAGES
from tests.support.waiting import eventually
from tests.tables.conftest import receive, receive_all

FOREIGN = pa.table({"payload": [b"mine"], "partition_key": ["k"]})


def without_not_null(root, topic="t") -> None:
    """The table as earlier releases made it."""
    path = create_topic(Layout(root.folder), topic).path / "_delta_log" / f"{0:020d}.json"
    fresh = path.with_name(".first")  # the broker may look at any moment, and half a file stops the topic
    fresh.write_text(path.read_text().replace('\\"nullable\\":false', '\\"nullable\\":true'))
    fresh.replace(path)


def append(root, rows=FOREIGN, topic="t") -> None:
    nulls = {
        field.name: pa.nulls(rows.num_rows, field.type)
        for field in MESSAGES.schema
        if field.name not in rows.column_names
    }
    whole = pa.table(
        {name: nulls.get(name, rows[name] if name in rows.column_names else None) for name in MESSAGES.schema.names}
    )
    write_deltalake(str(root.path(topic)), whole.cast(MESSAGES.schema), mode="append")


def test_the_table_refuses_rows_that_are_no_publish(root):
    root.send(["a"])
    with pytest.raises(DeltaError, match="(?i)invalid|null"):
        append(root)
    assert root.table().version() == 1


def test_the_table_and_the_columns_that_refuse_rows_say_how_to_publish(root):
    """In the comments, which DESCRIBE and catalogs show."""
    root.send(["a"])
    comments = {field.name: field.metadata.get("comment", "") for field in root.table().schema().fields}
    ways = 'write.format("pulsar_spark")', "pulsar_spark.frames.publish"
    assert {name for name, comment in comments.items() if all(way in comment for way in ways)} == {*NEVER_NULL}
    description = json.loads(root.table().metadata().description)
    assert all(way in description["how_to_publish"] for way in ways)


def test_foreign_rows_of_an_older_table_are_passed_over_counted_and_removed(root, caplog):
    without_not_null(root)
    consumer = root.subscribe()
    root.send(["a"])
    append(root)
    root.send(["b"])
    assert receive_all(consumer, 2) == ["a", "b"]
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 0)
    stats = root.stats()
    assert (stats["foreignMessages"], stats["msgInCounter"]) == (1, 2) and "error" not in stats
    assert "commit 2 added 1 rows that are not valid messages" in caplog.text
    would = root.admin.mend("t", dry_run=True)
    assert [(each["version"], each["what"], each["rows"]) for each in would] == [(2, "foreign", 1)]
    assert root.table().version() == 3
    assert root.admin.mend("t") == would
    assert sorted(root.rows()["payload"].to_pylist()) == [b"a", b"b"]
    assert "foreignMessages" not in root.stats() and root.admin.mend("t") == []
    root.send(["c"])
    assert receive_all(consumer, 1) == ["c"]


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"publish_id": ["x", "y"], "entry_id": pa.array([0, 1], pa.int64()), "payload": [b"1", b"2"]}),
        pa.table({"publish_id": ["x", "x"], "entry_id": pa.array([0, 5], pa.int64()), "payload": [b"1", b"2"]}),
        pa.table({"publish_id": ["x", None], "entry_id": pa.array([0, 1], pa.int64()), "payload": [b"1", b"2"]}),
        pa.table({"publish_id": ["x", "x"], "entry_id": pa.array([0, None], pa.int64()), "payload": [b"1", b"2"]}),
        pa.table(
            {
                "publish_id": ["x", "x"],
                "entry_id": pa.array([0, 1], pa.int64()),
                "batch_size": pa.array([3, 3], pa.int32()),
            }
        ),
    ],
    ids=["two publishes", "a gap", "a null id", "a null entry", "half a batch"],
)
def test_whatever_is_no_publish_is_passed_over(root, rows):
    without_not_null(root)
    consumer = root.subscribe()
    append(root, rows)
    root.send(["b"])
    assert receive_all(consumer, 1) == ["b"]
    assert root.stats()["foreignMessages"] == 2
    reader = root.client.create_reader("t", pulsar.MessageId.earliest)
    assert reader.read_next(60_000).data() == b"b"


def test_a_copy_of_the_topics_own_rows_is_delivered_once(root):
    consumer = root.subscribe()
    root.send(["a", "b"])
    rows = root.rows().cast(MESSAGES.schema)
    write_deltalake(str(root.path()), rows, mode="append")
    root.send(["c"])
    assert receive_all(consumer, 3) == ["a", "b", "c"]


def test_statistics_switched_off_are_no_reason_to_stop(root):
    consumer = root.subscribe()
    root.send(["a"])
    root.line(root.add(stats=None))
    root.send(["b"])
    assert receive_all(consumer, 2) == ["a", "b"]


LINES = {
    "5": lambda root: "5",
    "null": lambda root: "null",
    "a list": lambda root: "[]",
    "half a line": lambda root: '{"add": {"path": "x',
    "no UTF-8": lambda root: b'{"commitInfo": {"operation": "\xff\xfe"}}',
    "deep": lambda root: "[" * 100_000,
    "a number of 5,000 digits": lambda root: '{"txn": {"appId": "a", "version": ' + "9" * 5000 + "}}",
    "add is a text": lambda root: '{"add": "x"}',
    "add without a path": lambda root: '{"add": {"size": 1}}',
    "statistics of text": lambda root: root.add(stats="hello"),
    "statistics that are a list": lambda root: root.add(stats="[]"),
    "rows that are a text": lambda root: root.add(stats='{"numRecords": "many"}'),
    "rows below zero": lambda root: root.add(stats='{"numRecords": -1}'),
    "bounds that are a list": lambda root: root.add(stats='{"numRecords": 1, "minValues": []}'),
    "an entry id of text": lambda root: root.add(
        stats=json.dumps({"numRecords": 1, "minValues": {"entry_id": "a"}, "maxValues": {"entry_id": "a"}})
    ),
    "an entry id out of range": lambda root: root.add(
        stats=json.dumps({"numRecords": 1, "minValues": {"entry_id": 10**30}})
    ),
    "a publish id that is a number": lambda root: root.add(
        stats=json.dumps({"numRecords": 1, "minValues": {"publish_id": 7}})
    ),
    "a time that is none": lambda root: root.add(
        stats=json.dumps({"numRecords": 1, "minValues": {"publish_time": "noon"}})
    ),
    "a partition that is none": lambda root: root.add(partitionValues={"partition": "x"}),
    "partition values that are a list": lambda root: root.add(partitionValues=[1]),
    "a size of text": lambda root: root.add(size="big"),
    "remove is a number": lambda root: '{"remove": 5}',
    "an unknown feature": lambda root: json.dumps(
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["telepathy"],
                "writerFeatures": ["telepathy"],
            }
        }
    ),
    "a protocol of text": lambda root: '{"protocol": {"minReaderVersion": "a", "minWriterVersion": 2}}',
}


@pytest.mark.parametrize("name", LINES)
def test_a_commit_nobody_can_read_stops_that_topic_alone_until_it_is_mended(root, name, caplog):
    root.send(["a"])
    other, consumer = root.subscribe(topic="other"), root.subscribe()
    version = root.line(LINES[name](root))
    error = eventually(lambda: root.stats().get("error"))
    assert f"commit {version}" in error and "is stopped" in error
    eventually(lambda: error in caplog.text)
    root.send(["o"], topic="other")
    assert receive(other, 1) == ["o"], "other topics go on"
    assert receive_all(consumer, 1) == ["a"], "what was numbered before is delivered"
    with pytest.raises(pulsar.TopicStopped, match=f"commit {version}"):
        root.send_one("b")
    with pytest.raises(pulsar.TopicStopped, match=f"commit {version}"):
        root.subscribe("another")
    if name == "an unknown feature":
        return
    assert "topics mend" in error
    assert [each["version"] for each in root.admin.mend("t", dry_run=True)] == [version]
    assert (root.stats()["error"], root.stats()["errorKind"]) == (error, "stopped")
    assert [each["what"] for each in root.admin.mend("t")][0] == "commit"
    eventually(lambda: root.broker.rounds.bundle.topics["persistent://public/default/t"].error is None)
    root.send(["c"])
    assert receive_all(consumer, 1) == ["c"]
    assert not {"error", "errorKind"} & root.stats().keys()
    assert root.rows().num_rows >= 2


TORN = {
    "nothing": lambda text: "",
    "zeros": lambda text: "\0" * 512,
    "half": lambda text: text[: len(text) // 2],
    "all but the end": lambda text: text[:-20],
    "the first line": lambda text: text.splitlines()[0] + "\n",
    "another text": lambda text: "5\n",
}


@pytest.mark.parametrize("how", TORN)
@pytest.mark.parametrize("versions", [(2,), (2, 3)])
def test_a_publish_whose_commit_was_torn_is_delivered_after_mending(root, how, versions):
    """Its rows are in their files: mend does what repair does, beside a broker that serves."""
    root.send(["a"])
    consumer = root.subscribe()
    assert receive(consumer, 1) == ["a"]
    with root.broker.paused():
        for version in versions:
            root.send([f"{version}-0", f"{version}-1"], batching_enabled=True, batching_max_publish_delay_ms=5000)
        for version in versions:
            torn = TableLog(root.path()).file(version)
            written = torn.stat().st_mtime_ns
            torn.write_text(TORN[how](torn.read_text()))
            os.utime(torn, ns=(written, written))
    eventually(lambda: root.stats().get("error"))
    would = root.admin.mend("t", dry_run=True)
    assert [each["version"] for each in would] == list(versions) and all(
        "would be repaired" in each["text"] for each in would
    )
    assert [each["version"] for each in root.admin.mend("t")] == list(versions)
    assert receive(consumer, 2 * len(versions)) == [f"{version}-{number}" for version in versions for number in (0, 1)]
    assert not {"error", "foreignMessages", "deletedMessages", "lostMessages"} & root.stats().keys()
    assert root.admin.doctor() == [] and root.admin.mend("t") == []


@pytest.mark.parametrize("how", sorted(TORN.keys() - {"the first line"}))
def test_a_deletion_whose_commit_was_torn_is_not_taken_for_a_publish(root, how):
    """What stayed of the rows lies in a file of its own: named again without the removal it would be there twice."""
    for value in "abc":
        root.send([value])
    root.table().optimize.compact()
    consumer = root.subscribe()
    with root.broker.paused():
        root.table().delete("publish_id = '" + root.rows()["publish_id"][0].as_py() + "'")
        torn = TableLog(root.path()).file(TableLog(root.path()).latest())
        torn.write_text(TORN[how](torn.read_text()))
    eventually(lambda: root.stats().get("error"))
    root.admin.mend("t")
    eventually(lambda: "error" not in root.stats())
    assert root.rows().num_rows in (2, 3) and len(receive(consumer)) == root.rows().num_rows


def test_a_publish_whose_statistics_were_spoiled_is_delivered_after_mending(root):
    consumer = root.subscribe()
    with root.broker.paused():
        root.send(["a", "b"])
        path = TableLog(root.path()).folder / f"{1:020d}.json"
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text(
            "\n".join(json.dumps({"add": {**each["add"], "stats": "?"}} if "add" in each else each) for each in actions)
        )
    eventually(lambda: root.stats().get("error"))
    root.admin.mend("t")
    assert receive_all(consumer, 2) == ["a", "b"]


def test_stats_say_that_a_topic_is_stopped_without_a_broker(tmp_path):
    topic = create_topic(Layout(tmp_path / "root"), "t")
    AppendTable(topic.path).append(MESSAGES.rows([dict(publish_id="p", entry_id=0, batch_size=1, partition=-1)]))
    TableLog(topic.path).folder.joinpath(f"{2:020d}.json").write_text("5\n")
    admin = Admin(f"delta:{tmp_path / 'root'}")
    stats = admin.stats("t")
    assert "commit 2" in stats["error"] and stats["msgInCounter"] == 1
    admin.mend("t")
    assert "error" not in admin.stats("t")


@pytest.mark.parametrize(
    "line",
    [
        "5",
        '{"metaData": 5}',
        '{"protocol": {"minWriterVersion": "x"}}',
        '{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}',
        '{"metaData": {"id": 1, "description": "[]"}}',
        "",
        '{"metaData": {"id": "x", "description": "{\\"format\\": \\"pulsar_spark\\"}"}}',
    ],
)
@pytest.mark.parametrize("name", ["foreign", "_delta_log", "a_2eb"])
def test_a_foreign_log_beside_topics_is_no_topic(root, line, name):
    root.send(["a"])
    log = root.path().parent / name / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text(line)
    root.send(["b"], topic="u")
    assert receive_all(root.subscribe(topic="u"), 1) == ["b"]
    assert [topic["topic"] for topic in root.admin.list_topics()] == [
        "persistent://public/default/t",
        "persistent://public/default/u",
    ]


def test_a_foreign_partition_is_no_partition(root):
    root.admin.create_partitioned_topic("p", 2)
    topic = read_topic(root.client._layout, "p")
    root.send(["a", "b"], topic="p")
    rows = pa.table({name: pa.nulls(1, MESSAGES.schema.field(name).type) for name in MESSAGES.schema.names}).to_pylist()
    rows[0].update(
        publish_id="x", entry_id=0, batch_size=1, partition=7, publish_time=root.rows("p")["publish_time"][0].as_py()
    )
    write_deltalake(str(topic.path), MESSAGES.rows(rows), mode="append")
    consumer = root.subscribe(topic="p")
    root.send(["c"], topic="p")
    assert sorted(receive_all(consumer, 3)) == ["a", "b", "c"]
    assert root.stats("p")["msgInCounter"] == 3


def test_half_a_surrogate_refuses_its_message_alone(root):
    consumer = root.subscribe()
    producer = root.client.create_producer("t")
    answers = {}
    with root.broker.paused():
        for number in range(20):
            properties = {"p": "\ud800"} if number == 7 else {"p": "x"}
            producer.send_async(
                str(number).encode(),
                lambda error, _, number=number: answers.update({number: error}),
                properties=properties,
            )
        producer.flush()
    assert answers == {
        number: pulsar.Result.InvalidMessage if number == 7 else pulsar.Result.Ok for number in range(20)
    }
    assert receive_all(consumer, 19) == [str(number) for number in range(20) if number != 7]
