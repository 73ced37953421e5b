"""Large chunked messages that Spark's own reader reads and puts together: here all of them are."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from pulsar_spark.frames import chunk_scans, publish, read_messages
from pulsar_spark.frames.chunk_scans import GONE, _is_room, _Message, _tasks
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import create_topic, read_topic
from tests.arriving import arrive
from tests.plain_broker import PlainBroker

WRONG = "its chunks have 10 bytes together, and one of them says that the message has 11 (total_chunk_msg_size)"


@pytest.fixture
def all_are_large(monkeypatch):
    monkeypatch.setattr(chunk_scans, "LEAST_BYTES", 1)
    monkeypatch.setattr(chunk_scans, "_AROUND", 1000)


def is_scanned(frame) -> bool:
    """Does Spark put messages together? No other plan of these groups rows."""
    return "listagg" in frame._jdf.queryExecution().analyzed().toString()


def rows_of(frame) -> list[tuple]:
    rows = frame.select("position", "payload", "payload_error").collect()
    return sorted((row[0], row[1] and bytes(row[1]), row[2]) for row in rows)


def message(number: int, size: int, path: str) -> _Message:
    run = Run(0, 10**6, 1, 1, "p", 0, path, None, None, 0, False, True, False)
    return _Message(number, size, [(run, 10 * number, 10 * number + 9)])


def test_messages_are_read_together_by_where_they_lie(monkeypatch):
    """In tasks of about as many bytes each."""
    monkeypatch.setattr(chunk_scans, "LEAST_BYTES", 10)
    messages = [message(number, 100, "f") for number in range(7)]
    assert [[each.row for each in task] for task in _tasks(messages, 16)] == [[0], [1], [2], [3], [4], [5], [6]]
    assert [[each.row for each in task] for task in _tasks(messages, 2)] == [[0, 1, 2], [3, 4, 5, 6]]
    assert [[each.row for each in task] for task in _tasks(messages[:1], 4)] == [[0]]
    monkeypatch.setattr(chunk_scans, "MOST_CHUNKS", 69)
    assert _tasks(messages, 2) == []
    assert _tasks([message(0, 9, "f")], 2) == [] and _tasks([message(0, 0, "f")], 2) == [] and _tasks([], 2) == []


def test_messages_of_few_files_are_put_together(spark, tmp_path, all_are_large):
    """Columns and payloads are those that workers give; messages in one piece between them are none of it."""
    root = tmp_path / "root"
    rows = spark.range(0, 40, 1, 2).withColumn("size", F.when(F.col("id") % 3 == 0, 2500 + F.col("id")).otherwise(9))
    payloads = rows.selectExpr("repeat(chr(int(48 + id)), int(size)) AS payload", "concat('k', id) AS key")
    create_topic(Layout(root), "t", 3)
    publish(payloads, root, "t", chunking=True, chunk_max_message_size=1000)
    by_scans = read_messages(spark, root, "t")
    assert is_scanned(by_scans)
    with pytest.MonkeyPatch.context() as usual:
        usual.setattr(chunk_scans, "LEAST_BYTES", 1 << 30)
        by_workers = read_messages(spark, root, "t")
    assert not is_scanned(by_workers)
    places = [("partition", "ascending"), ("position", "ascending")]
    found, expected = (frame.toArrow().sort_by(places) for frame in (by_scans, by_workers))
    assert found.num_rows == 40 and found.equals(expected.cast(found.schema))
    assert by_scans.select("position").count() == 40


def test_what_changed_since_is_told_of_its_message_alone(spark, tmp_path, all_are_large):
    with PlainBroker(tmp_path / "root") as served:
        create_topic(served.layout, "t")
        arrive(served, "t", "A:0:2", "B:0:2", "A:1:2", "B:1:2", "plain", "C:0:2", "C:1:2", total_chunk_msg_size=10)
        arrive(served, "t", "D:0:2", "D:1:2", total_chunk_msg_size=11)
        read = read_messages(spark, served.layout.root, "t")
        path = read_topic(served.layout, "t").path
        wrong = (8, None, f"UnreadableMessage: {WRONG}")
        a, b, c = (2, b"A:0:2A:1:2", None), (3, b"B:0:2B:1:2", None), (6, b"C:0:2C:1:2", None)
        plain = (4, b"plain", None)
        assert is_scanned(read) and rows_of(read) == [a, b, plain, c, wrong]
        spark.sql(f"DELETE FROM delta.`{path}` WHERE uuid = 'B' AND chunk_id = 0")
        gone = (3, None, f"UnreadableMessage: {GONE}")
        assert rows_of(read) == [a, gone, plain, c, wrong]
        spark.sql(f"OPTIMIZE delta.`{path}`")
        assert rows_of(read) == [a, gone, plain, c, wrong]
        assert rows_of(read_messages(spark, served.layout.root, "t")) == [a, plain, c, wrong]


def test_they_are_left_to_workers_where_the_heap_is_small(spark, tmp_path, all_are_large, monkeypatch):
    root = tmp_path / "root"
    publish(spark.sql("SELECT repeat('x', 3000) AS payload"), root, "t", chunking=True, chunk_max_message_size=1000)
    assert is_scanned(read_messages(spark, root, "t"))
    monkeypatch.setattr(chunk_scans, "_heap_bytes", lambda spark: 10_000)
    assert not is_scanned(read := read_messages(spark, root, "t"))
    assert rows_of(read) == [(2, b"x" * 3000, None)]


def test_tasks_read_little_more_than_their_messages(monkeypatch):
    """And as many of them as there are cores fit the heap."""
    monkeypatch.setattr(chunk_scans, "_read_bytes", lambda topic, task: 10 * len(task))
    tasks = [[message(0, 8, "f")], [message(1, 8, "f")], [message(2, 8, "f")]]
    two, one = 20 * chunk_scans.HEAP_TIMES, 10 * chunk_scans.HEAP_TIMES
    assert _is_room(None, tasks, 2, two) and not _is_room(None, tasks, 2, two - 1)
    assert _is_room(None, tasks, 1, one) and not _is_room(None, [[message(0, 7, "f")]], 1, one)


def test_bytes_of_a_file_that_does_not_say_its_ids_are_all_counted(tmp_path):
    rows = pa.table({"entry_id": pa.array([5, 6]), "payload": [b"x" * 100, b"y" * 100]})
    for statistics, expected in ((True, (5, 6)), (False, (0, 1 << 63))):
        path = str(tmp_path / f"{statistics}.parquet")
        pq.write_table(rows, path, write_statistics=statistics)
        ((low, high, size),) = chunk_scans._groups(path)
        assert (low, high) == expected and size > 200
