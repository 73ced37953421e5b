"""What the driver reads of chunks for frames: their rows, the sizes of their payloads, rows of last chunks."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pulsar_spark.frames.reading import chunk_groups, last_chunks
from pulsar_spark.frames.reading.chunk_payloads import Parts, _joined
from pulsar_spark.frames.reading.last_chunks import names_of, read_last_chunks
from pulsar_spark.storage.chunks.chunk_rows import PAYLOAD_BYTES, Room, rows_of_chunks
from pulsar_spark.storage.entries.slices import DELIVERED
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.arriving import arrive
from tests.support.waiting import eventually

ENTRIES = ("A:0:2", "plain", "B:0:2", "A:1:2", "B:1:2")


@pytest.fixture
def served(tmp_path):
    with PlainBroker(tmp_path / "root") as broker:
        create_topic(broker.layout, "t", 1)
        arrive(broker, "t", *ENTRIES, partition=0, properties={"from": "JFK"})
        yield broker


@pytest.fixture
def spans_of(served):
    """The runs of a partition, once the broker has committed them."""
    topic, ledgers = read_topic(served.layout, "t"), LedgerIndex(served.layout)
    eventually(lambda: ledgers.end(topic.topic_id, 0) == len(ENTRIES))
    return partial(partial, ledgers.spans_of, topic.topic_id)


def read(served, spans_of, columns, room=None) -> list[dict]:
    table = read_topic(served.layout, "t").path
    found = [rows_of_chunks(table, run, spans, columns, room) for run, spans in spans_of(0)([(0, 4)])]
    return pa.concat_tables(found).to_pylist()


def test_rows_of_chunks_are_those_that_the_table_has(served, spans_of):
    expected = [(0, "A", 5), (2, "B", 5), (3, "A", 5), (4, "B", 5)]
    rows = read(served, spans_of, ("uuid", PAYLOAD_BYTES))
    assert [tuple(row.values()) for row in rows] == expected
    path = read_topic(served.layout, "t").path
    DeltaTable(str(path)).delete("uuid = 'A' AND chunk_id = 1")
    ((lost, _),) = spans_of(0)([(2, 2)])
    (path / lost.path).unlink()
    assert [row["position"] for row in read(served, spans_of, ("uuid",))] == [0, 4]


def test_payloads_are_kept_while_there_is_room(served, spans_of):
    columns = (PAYLOAD_BYTES, "payload")
    for most, kept in ((20, [b"A:0:2", b"B:0:2", b"A:1:2", b"B:1:2"]), (19, [b"A:0:2", b"B:0:2", b"A:1:2", None])):
        room = Room(most)
        rows = read(served, spans_of, columns, room)
        assert [row["payload"] for row in rows] == kept and {row[PAYLOAD_BYTES] for row in rows} == {5}
        assert room.is_enough == (None not in kept)


def test_what_is_read_at_once_is_limited_and_never_parts_of_a_message(monkeypatch):
    ends = {9: 0, 4: 2, 10: 10, 25: 20, 22: 21, 31: 30}
    assert [*chunk_groups._stretches(ends)] == [[(0, 9), (10, 10), (20, 25), (30, 31)]]
    monkeypatch.setattr(chunk_groups, "_AT_ONCE", 3)
    assert [*chunk_groups._stretches(ends)] == [[(0, 9), (10, 10)], [(20, 25)], [(30, 31)]]
    assert [*chunk_groups._stretches({})] == []


def test_rows_of_few_last_chunks_are_read_here(served, spans_of, monkeypatch):
    topic, lasts = read_topic(served.layout, "t"), {0: np.array([3, 4])}
    rows = read_last_chunks(topic, lasts, spans_of, None, {(0, 4): 7})
    assert rows.column_names == [name for name in names_of(None) if name != "payload"]
    assert set(DELIVERED) - {*rows.column_names} == {"payload"}
    said = rows.select(["position", "uuid", "redelivery_count", "partition"]).to_pylist()
    assert [tuple(row.values()) for row in said] == [(3, "A", 0, 0), (4, "B", 7, 0)]
    assert {row["publish_id"] for row in rows.to_pylist()} == {f"{number:032x}" for number in (3, 4)}
    assert rows["properties"].to_pylist() == [[("from", "JFK")]] * 2
    assert read_last_chunks(topic, lasts, spans_of, ["mine"], {}) is None, "somebody else's column"
    for name in ("MOST_ROWS", "MOST_RUNS"):
        with monkeypatch.context() as patch:
            patch.setattr(last_chunks, name, 1)
            assert read_last_chunks(topic, lasts, spans_of, ["payload"], {}) is None


def test_kept_payloads_are_put_together_message_by_message():
    payloads = pa.array([b"a", b"b", b"", b"c", b"d"], pa.binary())
    parts = Parts(0, np.array([1, 4, 2, 5, 7]), np.array([4, 4, 7, 7, 7]), payloads=payloads)
    assert _joined([parts]).to_pylist() == [
        {"partition": 0, "position": 4, "payload": b"ab"},
        {"partition": 0, "position": 7, "payload": b"cd"},
    ]
    assert _joined([parts.of_messages([7])])["payload"].to_pylist() == [b"cd"]
    assert _joined([parts.of_messages([])]).num_rows == 0
