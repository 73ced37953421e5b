"""The compacted view of a topic: what a crash leaves, who may compact, and what becomes of what was trimmed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulsar_spark as pulsar
from pulsar_spark.broker.compaction import compaction, compaction_plan
from pulsar_spark.errors import CorruptState, NotAllowedError
from pulsar_spark.protocol.policies.compaction import ERROR, NOT_RUN, RUNNING, SUCCESS
from pulsar_spark.storage.compaction import compacted
from pulsar_spark.storage.compaction.compacted import (
    DURATION_MS,
    REMOVED,
    CompactedView,
    Facts,
    is_in_order,
    make_view,
    replace_rows,
)
from pulsar_spark.storage.compaction.compacted_entries import CompactedEntries
from pulsar_spark.storage.compaction.compaction_status import ENDED, compacting, compaction_status
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import ledgers_until
from pulsar_spark.storage.topics.topics import create_topic, delete_topic, read_topic
from pulsar_spark.storage.upkeep.upkeep import vacuum
from tests.support.crashes import Crash, crash_at_write

TOPIC = "persistent://public/default/t"


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "root")
    create_topic(layout, TOPIC)
    return layout


@pytest.fixture
def send(layout):
    """Publishes messages, each a key and a payload."""
    client = pulsar.Client(f"delta:{layout.root}")
    producer = client.create_producer(TOPIC)
    yield lambda *sent: [producer.send(value.encode(), partition_key=key) for key, value in sent]
    client.shutdown()


def compact(layout, **options):
    found = read_topic(layout, TOPIC)
    return compaction.compact(layout, found, found.partition_indexes, **options)


def shown(layout, view=None):
    view = view or CompactedView(read_topic(layout, TOPIC).path)
    rows = [row for rows in view.rows_after(-1, 0) for row in rows.to_pylist()]
    return {row["partition_key"]: row["payload"].decode() for row in rows}


def status(layout):
    found = read_topic(layout, TOPIC)
    return compaction_status(found, CompactedView(found.path))


WRITES = (Path, "write_text"), (os, "link"), (os, "pwrite"), (pq, "ParquetWriter")
"""A data file, a text, a link, or a word of how it goes."""


@pytest.mark.parametrize("is_first", [True, False])
def test_a_crash_at_any_write_leaves_the_view_that_was_or_the_new_one(layout, send, is_first):
    send(("a", "1"), ("b", "1"))
    before = {}
    if not is_first:
        compact(layout)
        before = shown(layout)
    send(("a", "2"), ("c", "1"))
    after, number, seen = {"a": "2", "b": "1", "c": "1"}, 0, []
    while not seen or seen[-1] is not None:
        number += 1
        try:
            with crash_at_write(number, *WRITES):
                compact(layout)
            seen.append(None)
        except Crash:
            seen.append(shown(layout))
            assert seen[-1] in (before, after), number
    assert shown(layout) == after and before in seen and len(seen) > 4
    assert status(layout).status == SUCCESS
    assert compact(layout) is False, "there is nothing new"


def test_a_process_that_is_killed_leaves_the_view_and_its_status(layout, send):
    send(("a", "1"))
    compact(layout)
    send(("a", "2"))
    program = """
import os, signal, sys
from pulsar_spark.broker.compaction import compaction
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import read_topic
compaction.replace_rows = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
layout = Layout(sys.argv[1])
compaction.compact(layout, read_topic(layout, sys.argv[2]), [-1])
"""
    killed = subprocess.run([sys.executable, "-c", program, str(layout.root), TOPIC], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert shown(layout) == {"a": "1"}
    assert status(layout) == (ERROR, ENDED, 0)
    assert compact(layout) and shown(layout) == {"a": "2"}
    assert status(layout).status == SUCCESS


def test_one_compaction_of_a_topic_runs_at_a_time(layout, send):
    send(("a", "1"))
    found = read_topic(layout, TOPIC)
    assert status(layout).status == NOT_RUN
    with compacting(found):
        assert status(layout).status == RUNNING
        with pytest.raises(NotAllowedError, match="Compaction already in progress"):
            compact(layout)
        assert status(layout).status == RUNNING, "which one that was refused did not change"
    assert compact(layout)
    assert status(layout).status == SUCCESS


def test_where_locks_do_not_hold_the_commit_lets_one_through(layout, send):
    send(("a", "1"))
    slow = make_view(read_topic(layout, TOPIC))
    compact(layout)
    with pytest.raises(NotAllowedError, match="Compaction already in progress"):
        replace_rows(slow, {-1: 1}, [], Facts(1, 1))
    assert shown(layout) == {"a": "1"}


def test_an_error_is_the_status_and_changes_nothing(layout, send):
    send(("a", "1"))
    compact(layout)
    send(("a", "2"))
    file = max(read_topic(layout, TOPIC).path.glob("*.parquet"), key=os.path.getmtime)
    file.unlink()
    with pytest.raises(pulsar.PulsarException):
        compact(layout)
    said = status(layout)
    assert said.status == ERROR and said.last_error.startswith("MessagesLost") and said.failed_time_ms > 0
    assert shown(layout) == {"a": "1"}


def test_what_takes_spark_is_refused_without_it(layout, send, monkeypatch):
    monkeypatch.setattr(compaction_plan, "SMALL_MESSAGES", 1)
    send(("a", "1"), ("b", "1"))
    with pytest.raises(NotAllowedError, match="takes Spark: 'pulsar-spark compact"):
        compact(layout)
    assert status(layout).status == ERROR and shown(layout) == {}


def test_the_view_says_what_was_done(layout, send):
    send(("a", "1"), ("a", "2"), ("b", "1"))
    compact(layout)
    view = CompactedView(read_topic(layout, TOPIC).path)
    assert view.transaction(REMOVED) == 1 and view.transaction(DURATION_MS) >= 0 and view.horizon(-1) == 3
    assert (view.messages([-1]), view.messages([0])) == (2, 0)
    send(("b", "2"))
    assert not view.look(), "publishing is no compaction"
    compact(layout)
    assert view.look() and view.horizon(-1) == 4


def test_entries_are_read_from_the_view_up_to_the_horizon_and_from_the_topic_behind_it(layout, send):
    send(("a", "1"), ("b", "1"), ("a", "2"))
    compact(layout)
    send(("b", "2"))
    topic = read_topic(layout, TOPIC)
    entries = CompactedEntries(EntryReader())
    runs = list(ledgers_until(layout, topic, TableLog(topic.path).latest())[-1].runs)
    found = [list(entries.read(topic.path, run, columns=["payload"])) for run in runs]
    (missing,), (b1,), (a2,), (b2,) = found
    assert (missing.messages, missing.whole, missing.is_lost) == (1, [(0, 0)], False)
    assert [rows["payload"].to_pylist() for rows in (b1, a2, b2)] == [[b"1"], [b"2"], [b"2"]]
    assert [rows["position"].to_pylist() for rows in (b1, a2, b2)] == [[1], [2], [3]]


def test_what_left_the_view_stays_for_its_readers_and_goes_in_the_end(layout, send, monkeypatch):
    send(("a", "1"))
    compact(layout)
    old, unread = (CompactedView(read_topic(layout, TOPIC).path) for _ in range(2))
    send(("a", "2"))
    compact(layout)
    assert shown(layout, old) == {"a": "1"}
    monkeypatch.setattr(compacted, "GRACE_SECONDS", -1)
    send(("a", "3"))
    compact(layout)
    assert len(list(old.path.glob("*.parquet"))) < 3
    with pytest.raises(FileNotFoundError):
        shown(layout, unread)
    assert unread.look() and shown(layout, unread) == {"a": "3"}


@pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(b"PAR1"), lambda file: flip(file)])
def test_a_view_that_is_harmed_is_an_error_with_a_name(layout, send, harm):
    send(("a", "1"))
    compact(layout)
    (file,) = (read_topic(layout, TOPIC).path / compacted.FOLDER).glob("*.parquet")
    harm(file)
    with pytest.raises(CorruptState, match="restore it, or remove the folder"):
        shown(layout)
    log = read_topic(layout, TOPIC).path / compacted.FOLDER / "_delta_log"
    for commit in log.glob("*.json"):
        commit.write_text("{")
    with pytest.raises(CorruptState, match="cannot be opened"):
        shown(layout)


def test_a_file_out_of_order_is_known(tmp_path):
    for number, (positions, is_sorted) in enumerate(
        (([1, 1, 2, 5], True), ([1, 5, 2, 6], False), ([5, 6, 1, 2], False))
    ):
        path = tmp_path / str(number)
        pq.write_table(pa.table({"position": pa.array(positions, pa.int64())}), path, row_group_size=2)
        assert is_in_order(path) is is_sorted


def flip(file):
    content = bytearray(file.read_bytes())
    content[30] ^= 1
    file.write_bytes(bytes(content))


def test_upkeep_of_the_topic_leaves_the_view_alone(layout, send):
    send(("a", "1"))
    compact(layout)
    path = read_topic(layout, TOPIC).path
    for file in path.rglob("*.parquet"):
        os.utime(file, (0, 0))
    assert vacuum(layout, path, hours=1) == []
    assert shown(layout) == {"a": "1"}


def test_a_topic_made_again_begins_without_a_view(layout, send):
    send(("a", "1"))
    compact(layout)
    delete_topic(layout, TOPIC)
    create_topic(layout, TOPIC)
    assert shown(layout) == {} and status(layout).status == NOT_RUN
    assert compact(layout) is False, "an empty topic"
    assert status(layout).status == SUCCESS
