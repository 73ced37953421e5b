"""When a round is a snapshot: at regular intervals, rarer the larger the state is; and what a start finds in between is
the same."""

import pytest

from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


@pytest.mark.parametrize(
    ("ranges_a_snapshot", "as_ranges", "snapshots"),
    [(1000, 10, [3, 6, 9, 12]), (4, 0, [6, 12]), (20, 20, [6, 12])],
    ids=["small", "many ranges", "many cursors and consumers"],
)
def test_a_larger_state_is_written_whole_less_often(tmp_path, monkeypatch, ranges_a_snapshot, as_ranges, snapshots):
    monkeypatch.setattr("pulsar_spark.broker.committing.snapshots.SNAPSHOT_EVERY", 3)
    monkeypatch.setattr("pulsar_spark.broker.committing.snapshots.RANGES_A_SNAPSHOT", ranges_a_snapshot)
    monkeypatch.setattr("pulsar_spark.broker.committing.snapshots.AS_RANGES", as_ranges)
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1] * 40)
    engine.round([ON.subscribe("A"), ON.flow("A", 100), *(ON.ack(position) for position in range(1, 9, 2))], 0)
    for round_number in range(2, 13):
        engine.round([ON.ack(20 + round_number)], round_number)
    ledger = engine.layout.broker_table("cursor_ledger")
    found = [version for version in range(1, 13) if any(read_round(ledger, version)["is_snapshot"].to_pylist())]
    assert found == snapshots
    before = engine.state(TOPIC, -1, "s")
    engine.start()
    assert list(engine.rounds.bundle.cursors.values())[0].unacked == {"A": 40 - 4 - 11}
    engine.round([ON.flow("A", 1)], 20)
    assert engine.state(TOPIC, -1, "s")["acknowledged"] == before["acknowledged"]
