"""The runs of a topic partition take little memory and are what they were."""

import tracemalloc
from datetime import UTC, datetime, timedelta, timezone

import pytest

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.ledgers import PartitionLedgers
from pulsar_spark.storage.packed_columns import Flags, Instants, Optional, Texts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "made, values",
    [
        (Texts, ["", "partition=1/a", "ü" * 40, "", "z"]),
        (Flags, [True, False, True]),
        (Optional, [None, 0, -1, 2**62, None]),
        (Instants, [None, NOON, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
    ],
)
def test_what_was_appended_is_found(made, values):
    column = made()
    for value in values:
        column.append(value)
    assert [column[index] for index in range(len(values))] == values and column[-1] == values[-1]
    with pytest.raises(IndexError):
        column[len(values)]


def run(position: int) -> Run:
    there = NOON + timedelta(seconds=position), NOON.astimezone(timezone(timedelta(hours=2)))
    path = f"part-00000-{position:032d}-c000.snappy.parquet"
    return Run(
        position, 1, 1, position + 1, f"{position:032x}", 0, path, *there, 900, False, False, True, None, 7, False
    )


def test_runs_come_back_as_they_were_and_take_few_bytes():
    ledgers, count = PartitionLedgers(), 20_000
    tracemalloc.start()
    for position in range(count):
        ledgers.add(run(position))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / count < 300
    assert list(ledgers.runs[:3]) == [run(position) for position in range(3)] and ledgers[count - 1] == run(count - 1)
