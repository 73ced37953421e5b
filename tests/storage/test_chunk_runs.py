"""Runs that may have chunks are looked up as among all runs, and no others are read."""

import pytest

from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups
from pulsar_spark.storage.chunks.chunk_runs import ChunkRuns, chunk_runs_of
from pulsar_spark.storage.ledgers import needed_runs
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from tests.support.model_chunks import Chunk
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    """Plain messages, and chunks of two messages among them, one of which lacks its last one."""
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    of_a, of_b = ([Chunk(name, number, 3) for number in range(3)] for name in "ab")
    for chunk in (None, None, of_a[0], None, of_b[0], of_a[1], None, of_a[2], of_b[1], None):
        engine.publish(TOPIC, -1, [1], chunks=[chunk])
    engine.publish(TOPIC, -1, [2])
    engine.run([], 1)
    return engine


def both(engine: SparkEngine) -> tuple[ChunkRuns, PartitionLedgers]:
    state = engine.rounds.bundle.topic(TOPIC)
    return chunk_runs_of(engine.layout, state.topic.topic_id, -1), state.ledgers(-1)


def test_they_are_looked_up_as_among_all(engine):
    few, every = both(engine)
    assert few.last_chunk_position == every.last_chunk_position == 8 and few.end_position == 9
    for first in range(11):
        assert list(few.chunk_runs(first)) == list(every.chunk_runs(first)), first
    for positions in ([2], [4, 5], [2, 4, 5, 7, 8]):
        assert list(few.spans_of(ranges_of(positions))) == list(every.spans_of(ranges_of(positions)))
    assert ChunkRuns().last_chunk_position == -1 and list(ChunkRuns().chunk_runs(0)) == []


def test_positions_of_no_run_are_passed_over(engine):
    """Before all runs, between them, behind them."""
    few, _ = both(engine)
    assert [(run.first_position, parts) for run, parts in few.spans_of([(0, 2), (3, 6), (8, 99)])] == [
        (2, [(2, 2)]),
        (4, [(4, 4)]),
        (5, [(5, 5)]),
        (8, [(8, 8)]),
    ]
    assert list(few.spans_of([(0, 1), (3, 3), (9, 12)])) == [] == list(ChunkRuns().spans_of([(0, 9)]))


def test_groups_are_the_same_by_them(engine):
    table = engine.rounds.bundle.topic(TOPIC).topic.path
    few, every = (ChunkGroups(table, runs) for runs in both(engine))
    for first in range(11):
        assert few.parts(first, 20) == every.parts(first, 20)
        assert [each.tolist() for each in few.units(first, 20)] == [each.tolist() for each in every.units(first, 20)]
    assert [each.tolist() for each in few.open()] == [each.tolist() for each in every.open()]


def test_no_other_runs_are_read(engine, monkeypatch):
    read, runs_of = [], needed_runs.runs_of
    monkeypatch.setattr(needed_runs, "runs_of", lambda rows: read.append(rows.num_rows) or runs_of(rows))
    both(engine)
    assert read == [5]
