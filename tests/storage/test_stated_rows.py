"""Rows that small commits state: they are those of the files, and nothing that somebody wrote there by hand breaks a
reader."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

from pulsar_spark.storage.delta.data_files import read_added, read_file
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.reader_rows import MOST_STATED, MOST_STATED_BYTES, STATED
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries import entries
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.missing import Missing
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.topics.topics import Topic, create_topic
from pulsar_spark.table_specs import CURSOR_LEDGER, MESSAGES

NOON = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)
FULL = {
    "partition_key": "kéy",
    "payload": b"\x00\xff",
    "properties": {"a": "1", "b": ""},
    "event_time": NOON,
    "publish_time": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "sequence_id": -(1 << 63),
    "partition_key_b64_encoded": False,
}


@pytest.fixture
def topic(layout) -> Topic:
    return create_topic(layout, "t")


def publish(topic: Topic, *messages: dict, batch_size: int = 1):
    """A publish of *messages*, in entries of so many, as a run."""
    version = TableLog(topic.path).latest() + 1
    place = {"publish_id": f"{version:032x}", "batch_size": batch_size, "partition": -1, "publish_time": NOON}
    rows = [
        {**place, "entry_id": at // batch_size, "batch_index": at % batch_size if batch_size > 1 else None, **message}
        for at, message in enumerate(messages)
    ]
    assert AppendTable(topic.path).append(MESSAGES.rows(rows)) == version
    ends = {-1: version - 1}
    ((run,),) = number_commit(topic.path, TableLog(topic.path).commit(version), ends, set()).values()
    return run


def rewrite(topic: Topic, version: int, change) -> None:
    """Change what a commit's first line has."""
    file = TableLog(topic.path).file(version)
    first, *others = file.read_text().splitlines()
    info = json.loads(first)
    change(info["commitInfo"])
    file.write_text("\n".join([json.dumps(info), *others]) + "\n")


def payloads(topic: Topic, *runs) -> list:
    """What a reader finds, run by run: payloads, or None for what is missing."""
    parts = [(run, [(run.first_position, run.last_position)]) for run in runs]
    found: list = []
    for _, rows in EntryReader().read_all(topic.path, parts):
        found += [None] if isinstance(rows, Missing) else rows["payload"].to_pylist()
    each = [
        None if isinstance(rows, Missing) else payload
        for run in runs
        for rows in EntryReader().read(topic.path, run)
        for payload in ([None] if isinstance(rows, Missing) else rows["payload"].to_pylist())
    ]
    assert found == each
    return found


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The files that were opened."""
    found, read = [], entries.RowGroups.read

    def reading(self, path, *arguments):
        found.append(path.rpartition("/")[2])
        return read(self, path, *arguments)

    monkeypatch.setattr(entries.RowGroups, "read", reading)
    return found


def test_stated_rows_are_those_of_the_file(topic):
    run = publish(topic, FULL, {}, {"ordering_key": "o", "deliver_at_time": NOON - timedelta(days=1_000_000 // 2)})
    commit = TableLog(topic.path).commit(run.ledger_id)
    assert commit.added[0].stated is not None
    stated = read_added(topic.path, commit, MESSAGES.schema)
    assert stated.to_pylist() == read_file(topic.path, run.path, MESSAGES.schema).to_pylist()
    assert stated.schema == MESSAGES.schema


def test_rows_of_the_brokers_tables_are_stated_too(tmp_path):
    create_table(tmp_path / "t", CURSOR_LEDGER)
    rows = CURSOR_LEDGER.rows([{"round": 1, "kind": "ranges", "ack_set": [1, -1]}, {"round": 1, "kind": "round"}])
    AppendTable(tmp_path / "t").append_fenced(rows, 0)
    commit = TableLog(tmp_path / "t").commit(1)
    assert commit.added[0].stated is not None
    assert read_added(tmp_path / "t", commit, CURSOR_LEDGER.schema).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    "messages",
    [
        [{"payload": b"x"}] * (MOST_STATED + 1),
        [{"payload": b"x" * MOST_STATED_BYTES}],
        [{"encryption_keys": [{"key": "k", "value": b"v", "metadata": None}]}],
    ],
)
def test_large_rows_and_those_that_json_lacks_are_not_stated(topic, messages):
    run = publish(topic, *messages)
    assert TableLog(topic.path).commit(run.ledger_id).added[0].stated is None
    assert len(payloads(topic, run)) == len(messages)


def test_many_small_publishes_are_read_without_their_files(topic, opened):
    runs = [publish(topic, {"payload": bytes([at])}) for at in range(3)]
    batch = publish(topic, *[{"payload": bytes([at])} for at in range(4)], batch_size=2)
    parts = [(run, [(run.first_position, run.last_position)]) for run in (*runs, batch)]
    ((run, rows),) = EntryReader().read_all(topic.path, parts)
    assert run is None and not opened
    assert rows["payload"].to_pylist() == [b"\0", b"\1", b"\2", b"\0", b"\1", b"\2", b"\3"]
    assert rows["ledger_id"].to_pylist() == [1, 2, 3, 4, 4, 4, 4]
    assert rows["position"].to_pylist() == [0, 1, 2, 3, 3, 4, 4]
    ((_, part),) = EntryReader().read_all(topic.path, [(batch, [(4, 4)])])
    assert part["payload"].to_pylist() == [b"\2", b"\3"]


def test_deleted_and_lost_messages_are_missing_though_their_commits_state_them(topic, opened):
    deleted, lost, changed, left = (publish(topic, {"payload": b"%d" % at, "sequence_id": at}) for at in range(4))
    table = DeltaTable(str(topic.path))
    table.delete("sequence_id = 0")
    table.update(updates={"producer_name": "'p'"}, predicate="sequence_id = 2")
    (topic.path / lost.path).unlink()
    assert payloads(topic, deleted, lost, changed, left) == [None, None, b"2", b"3"]
    (rows,) = EntryReader().read(topic.path, changed)
    assert rows["producer_name"].to_pylist() == ["p"]
    assert left.path not in opened


@pytest.mark.parametrize(
    "nonsense",
    [
        7,
        [],
        [None],
        [[1]],
        [{"entry_id": [0]}] * 2,
        [{"entry_id": [0], "payload": ["no base64!"]}],
        [{"entry_id": [0], "payload": [7]}],
        [{"entry_id": [0], "batch_size": [1 << 40], "payload": ["eA=="]}],
        [{"entry_id": ["0"], "payload": ["eA=="]}],
        [{"entry_id": [1], "payload": ["eA=="]}],
        [{"entry_id": [None], "payload": ["eA=="]}],
        [{"entry_id": [[]], "payload": ["eA=="]}],
        [{"entry_id": [0], "batch_index": [{}], "payload": ["eA=="]}],
        [{"entry_id": [0, 1], "payload": ["eA==", "eA=="]}],
        [{"entry_id": [0], "payload": ["eA=="] * 100_000}],
        [{"entry_id": [0], "properties": [{"a": 1}], "payload": ["eA=="]}],
        [{"payload": ["eA=="]}],
    ],
)
def test_what_does_not_fit_is_read_from_the_file(topic, nonsense):
    run, other = publish(topic, {"payload": b"file"}), publish(topic, {"payload": b"other"})
    rewrite(topic, run.ledger_id, lambda info: info.update({STATED: nonsense}))
    assert payloads(topic, run, other) == [b"file", b"other"]


def test_commits_of_others_and_of_earlier_releases_state_nothing(topic, opened):
    foreign, earlier = publish(topic, {"payload": b"f"}), publish(topic, {"payload": b"e"})
    rewrite(topic, foreign.ledger_id, lambda info: info.update({"engineInfo": "delta-rs"}))
    rewrite(topic, earlier.ledger_id, lambda info: info.pop(STATED))
    assert payloads(topic, foreign, earlier) == [b"f", b"e"]
    assert {foreign.path, earlier.path} == set(opened)


def test_plain_readers_and_checkpoints_know_nothing_of_them(topic):
    for at in range(3):
        publish(topic, {"payload": bytes([at])})
    table = DeltaTable(str(topic.path))
    table.create_checkpoint()
    (checkpoint,) = (topic.path / "_delta_log").glob("*.checkpoint.parquet")
    assert b"AQ==" not in checkpoint.read_bytes()
    assert sorted(dataset_of(table).to_table()["payload"].to_pylist()) == [b"\0", b"\1", b"\2"]
