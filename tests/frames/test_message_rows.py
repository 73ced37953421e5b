"""Which publishes are written by their tasks, side by side, or by Spark's writer, and what that holds."""

import pytest

from pulsar_spark.frames.publishing.chunking import Chunking
from pulsar_spark.frames.publishing.message_rows import Writing
from pulsar_spark.protocol.topics.routing import HashingScheme
from pulsar_spark.storage.delta.data_files import ROW_GROUP_BYTES

MIB = 1 << 20


def writing(
    partitions: int, largest: int | None = 5 * MIB, sort_by_key: bool = False, chunking: bool = False, **others
) -> Writing:
    there = list(range(partitions)) or [-1]
    splitting = Chunking(largest, -1) if chunking else None
    return Writing(there, partitions > 0, HashingScheme.JavaStringHash, sort_by_key, splitting, largest, **others)


@pytest.mark.parametrize(
    "asked, files",
    [
        (writing(0), 1),
        (writing(0, chunking=True), 0),
        (writing(0, 65 * MIB), 0),
        (writing(1), 1),
        (writing(8), 8),
        (writing(8, chunking=True), 8),
        (writing(9), 0),
        (writing(4, sort_by_key=True), 0),
        (writing(4, 16 * MIB), 4),
        (writing(4, 17 * MIB), 0),
        (writing(2, None), 0),
        (writing(4, is_on_disk=False), 0),
    ],
)
def test_few_partitions_of_messages_that_fit_into_memory_are_written_by_their_tasks(asked, files):
    assert asked.files_at_once == files


def test_what_sparks_writer_holds_is_bounded():
    asked = writing(9)
    group, rows = (int(asked.options[f"parquet.{name}"]) for name in ("block.size", "page.size.row.check.max"))
    assert group <= ROW_GROUP_BYTES and rows * asked.largest <= ROW_GROUP_BYTES
