"""Chunks whose messages are never complete, very many: each takes the broker a few bytes, and the rest flows. A
million of them are measured (tests.benchmarks.chunks)."""

import tracemalloc

import pyarrow as pa
import pytest

from pulsar_spark.storage.entries import message_files
from tests.support.orphans import incomplete, orphans
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ORPHANS = 100_000
MOST_BYTES_EACH = 200
"""What the broker may hold for good of a message that is not complete, in its own memory."""


@pytest.mark.parametrize("chunk_id", [0, 1], ids=["never finished", "never begun"])
def test_orphans_take_little(tmp_path, chunk_id):
    engine, on = new_engine(None, tmp_path), On(TOPIC)
    engine.create_topic(TOPIC)
    engine.round([on.subscribe("A"), on.flow("A", 9)], 1)
    engine.tables[TOPIC].append(orphans(ORPHANS, chunk_id))
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    delivered = engine.round([], 2)["deliveries"]
    held = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    assert [delivery.position for delivery in delivered] == [ORPHANS]
    assert held < MOST_BYTES_EACH * ORPHANS
    engine.round([on.ack(ORPHANS)], 3)
    engine.restart(4)
    assert not engine.round([], 4)["deliveries"]
    (cursor,) = engine.rounds.bundle.cursors.values()
    assert cursor.mark_delete == (ORPHANS if chunk_id else -1)


def test_of_what_is_not_complete_no_payload_is_read(tmp_path, monkeypatch, only_in_files):
    """However large it is (a hundred messages of 100 MB are measured)."""
    read, decoded = set(), message_files._decoded

    def noted(file, number: int, columns: list[str]) -> pa.Table:
        read.update(columns)
        return decoded(file, number, columns)

    monkeypatch.setattr(message_files, "_decoded", noted)
    engine, on = new_engine(None, tmp_path), On(TOPIC)
    engine.create_topic(TOPIC)
    engine.round([on.subscribe("A"), on.flow("A", 9)], 1)
    for number in range(3):
        engine.tables[TOPIC].append(incomplete(number, 4, 1_000))
    assert not engine.round([], 2)["deliveries"]
    engine.restart(3)
    assert not engine.round([], 3)["deliveries"]
    assert "uuid" in read and "payload" not in read
