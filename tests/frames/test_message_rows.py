"""Whether the rows of a publish are written side by side or sorted, and what is written of them at once."""

import pytest

from pulsar_spark.frames.chunking import Chunking
from pulsar_spark.frames.message_rows import Writing
from pulsar_spark.protocol.routing import HashingScheme
from pulsar_spark.storage.data_files import ROW_GROUP_BYTES

MIB = 1 << 20


def writing(partitions: int, largest: int | None = 5 * MIB, sort_by_key: bool = False) -> Writing:
    there = list(range(partitions)) or [-1]
    splitting = Chunking(largest, -1) if largest is not None else None
    return Writing(there, partitions > 0, HashingScheme.JavaStringHash, sort_by_key, splitting, largest)


@pytest.mark.parametrize(
    "asked, files",
    [
        (writing(0), 0),
        (writing(1), 1),
        (writing(8), 8),
        (writing(9), 0),
        (writing(4, sort_by_key=True), 0),
        (writing(4, 16 * MIB), 4),
        (writing(4, 17 * MIB), 0),
        (writing(2, None), 0),
    ],
)
def test_few_partitions_of_messages_that_fit_into_memory_are_written_side_by_side(asked, files):
    assert asked.files_at_once == files


@pytest.mark.parametrize("partitions", [0, 1, 4, 8, 9])
def test_what_a_task_writes_at_once_is_bounded(partitions):
    asked = writing(partitions)
    files = max(1, asked.files_at_once)
    group, rows = (int(asked.options[f"parquet.{name}"]) for name in ("block.size", "page.size.row.check.max"))
    assert files * group <= ROW_GROUP_BYTES
    assert rows * asked.largest <= ROW_GROUP_BYTES and files * rows * asked.largest <= 4 * ROW_GROUP_BYTES
