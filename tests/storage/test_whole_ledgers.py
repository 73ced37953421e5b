"""Publish commits, each whole, are what their runs add up to."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.whole_ledgers import NOTHING, whole_ledgers
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.table_specs import LEDGERS

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def layout(tmp_path) -> Layout:
    layout = Layout(tmp_path / "root")
    prepare_root(layout)
    return layout


def write(layout: Layout, rows: list[dict]) -> None:
    AppendTable(layout.broker_table(LEDGERS.name)).append(LEDGERS.rows(rows))


def drawn(draw: random.Random, partition: int) -> list[dict]:
    """The runs of some commits: of one file or several, some of which have several runs."""
    runs, position = [], 0
    for ledger_id in sorted(draw.sample(range(1, 100), draw.randint(1, 8))):
        for number in range(draw.randint(1, 4)):
            file, entries = draw.randint(0, 1), draw.randint(1, 3)
            published = draw.choice([None, EPOCH + timedelta(seconds=draw.randint(0, 99))])
            runs.append(
                dict(
                    topic="t",
                    topic_id="a",
                    partition=partition,
                    ledger_id=ledger_id,
                    publish_id=f"{ledger_id:032x}",
                    first_position=position,
                    first_entry_id=number,
                    entries=entries,
                    batch_size=1,
                    bytes=100 + file,
                    path=f"{ledger_id if draw.random() < 0.8 else 0}-{file}.parquet",
                    min_publish_time=published,
                    max_publish_time=published,
                )
            )
            position += entries
    return runs


@pytest.mark.parametrize("seed", range(15))
def test_they_are_what_their_runs_add_up_to(layout, seed):
    draw = random.Random(seed)
    partitions = {partition: drawn(draw, partition) for partition in range(draw.randint(1, 3))}
    rows = [row for runs in partitions.values() for row in runs]
    rows += draw.sample(rows, len(rows) // 3)  # written again after a crash
    rows += [row | {"topic_id": "b"} for row in rows] + [rows[0] | {"first_position": -1, "path": "foreign.parquet"}]
    draw.shuffle(rows)
    write(layout, rows)
    found = whole_ledgers(layout, "a")
    assert found.keys() == partitions.keys()
    for partition, runs in partitions.items():
        of_ledger = {row["ledger_id"]: [each for each in runs if each["ledger_id"] == row["ledger_id"]] for row in runs}
        ledgers = found[partition]
        assert ledgers.ledger_ids.tolist() == list(of_ledger)
        lasts = [each[-1]["first_position"] + each[-1]["entries"] - 1 for each in of_ledger.values()]
        assert ledgers.last_positions.tolist() == lasts and ledgers.end_position == lasts[-1] + 1
        sizes = [{row["path"]: row["bytes"] for row in each} for each in of_ledger.values()]
        assert ledgers.bytes.tolist() == [sum(each.values()) for each in sizes]
        published = [
            [row["max_publish_time"] for row in each if row["max_publish_time"]] for each in of_ledger.values()
        ]
        instants = [int(max(each).timestamp() * 1e6) if each else 0 for each in published]
        assert ledgers.published.tolist() == instants
        assert ledgers.publish_ids.to_pylist() == [row["publish_id"] for row in runs]
        assert ledgers.run_ledger_ids.tolist() == [row["ledger_id"] for row in runs]
        behind = [
            next((row["first_position"] for row in runs if row["ledger_id"] > at), lasts[-1] + 1) for at in range(101)
        ]
        assert [ledgers.first_after(at) for at in range(101)] == behind


def test_of_a_topic_without_runs_there_is_nothing(layout):
    assert whole_ledgers(layout, "a") == {}
    assert (NOTHING.end_position, NOTHING.first_after(3), len(NOTHING.ledger_ids)) == (0, 0, 0)


def test_positions_that_are_missing_are_said(layout):
    runs = drawn(random.Random(1), -1)
    write(layout, [row for row in runs if row is not runs[1]])
    first = runs[0]["entries"]
    last = first + runs[1]["entries"] - 1
    with pytest.raises(CorruptState, match=f"positions {first} to {last} are missing"):
        whole_ledgers(layout, "a")
