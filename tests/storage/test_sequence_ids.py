"""The highest sequence ids are found whatever became of the table's log, and only those that were asked for."""

import json
import time

import pytest

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.policies.deduplication import app_id, prefix_since
from pulsar_spark.storage.delta.checkpoints import checkpoints, make_checkpoint
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.sequence_ids import SequenceIds
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.storage.upkeep import shortening
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.table_specs import MESSAGES

HOUR_MS = 60 * 60 * 1000


@pytest.fixture
def topic(tmp_path):
    return create_topic(Layout(tmp_path / "root"), "t").path


def publish(path, highest: dict[str, int]) -> int:
    """One message; its commit says these, by name."""
    known = TableLog(path).latest()
    row = {"publish_id": f"{known:032}", "entry_id": 0, "batch_size": 1, "partition": -1}
    rows = MESSAGES.rows([row | {"publish_time": 0, "payload": b"x"}])
    return AppendTable(path).append_after(known, rows, {app_id(3, -1, name): each for name, each in highest.items()})


def found(path, *names: str, **options) -> dict[str, int]:
    wanted = {app_id(3, -1, name): name for name in names}
    ids = SequenceIds(path, wanted.__contains__, **options)
    ids.catch_up()
    return {wanted[name]: highest for name, highest in ids.highest.items()}


def test_the_latest_of_each_that_is_wanted(topic):
    assert found(topic, "p") == {}
    for highest in ({"p": 1}, {"q": 5, "p": 2}, {}, {"r": 9}):
        publish(topic, highest)
    assert (found(topic, "p", "q"), found(topic, "p", "x")) == ({"p": 2, "q": 5}, {"p": 2})
    ids = SequenceIds(topic, lambda name: name.startswith(prefix_since(4)))
    ids.catch_up()
    assert ids.highest == {}


def test_those_of_others_are_followed_and_overtake_an_append(topic):
    ids, name = SequenceIds(topic, {app_id(3, -1, "p")}.__contains__), app_id(3, -1, "p")
    ids.catch_up()
    before = ids.version
    publish(topic, {"p": 4})
    publish(topic, {"q": 9})
    rows, files = MESSAGES.schema.empty_table(), len(list(topic.glob("*.parquet")))
    assert AppendTable(topic).append_after(before, rows, {name: 3}) is None
    assert len(list(topic.glob("*.parquet"))) == files
    ids.catch_up()
    assert (ids.highest, ids.version) == ({name: 4}, 2)
    assert AppendTable(topic).append_after(1, rows, {name: 5}) == 3, "what came behind it is another's"


def test_they_outlive_a_log_that_is_shortened(topic, monkeypatch):
    monkeypatch.setattr(shortening, "CHOSEN_SECONDS", 0)
    ids = SequenceIds(topic, {app_id(3, -1, "p")}.__contains__)
    publish(topic, {"p": 1, "gone/ü": 7})
    ids.catch_up()
    known = ids.version
    for each in range(2, 6):
        publish(topic, {"p": each})
    make_checkpoint(topic)
    assert sum(shorten(topic, TableLog(topic).latest(), time.time() + 1)) > 0
    assert found(topic, "p", "gone/ü") == {"p": 5, "gone/ü": 7}
    name = app_id(3, -1, "p")
    assert AppendTable(topic).append_after(known, MESSAGES.schema.empty_table(), {name: 9}) is None
    ids.catch_up()
    assert ids.highest == {name: 5}
    publish(topic, {"p": 8})
    assert found(topic, "p") == {"p": 8}
    for each in checkpoints(topic):
        each.files[0].write_bytes(b"")
    with pytest.raises(CorruptState, match="no checkpoint can be read"):
        found(topic, "p")


def test_a_name_that_stored_nothing_for_so_long_is_forgotten(topic):
    publish(topic, {"old": 1, "new": 1})
    publish(topic, {"new": 2})
    first = TableLog(topic).file(1)
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "txn" in action:
            action["txn"]["lastUpdated"] -= 6 * HOUR_MS
    first.write_text("\n".join(map(json.dumps, actions)) + "\n")
    for _ in range(2):
        assert found(topic, "old", "new", forgotten_ms=5 * HOUR_MS) == {"new": 2}
        assert found(topic, "old", "new", forgotten_ms=7 * HOUR_MS) == {"old": 1, "new": 2}
        assert found(topic, "old", "new") == {"old": 1, "new": 2}
        make_checkpoint(topic)


def test_without_a_table(tmp_path):
    with pytest.raises(FileNotFoundError):
        found(tmp_path / "nowhere", "p")
