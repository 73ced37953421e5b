"""Write a bucket of the delay index with a Spark job, for publishes too large for the driver. The files' footers have
the statistics, so the driver reads no rows."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.broker.upkeep.side_jobs import SideJobs
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delay_index.delay_files import file_name, footer_of
from pulsar_spark.storage.delay_index.delay_notes import NewBucket
from pulsar_spark.storage.delay_index.delay_segments import (
    FILE_ENTRIES,
    SEGMENT_ENTRIES,
    Places,
    SegmentFile,
    Statistics,
)
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from pulsar_spark.storage.delta.data_files import removing
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.staging import staged
from pulsar_spark.storage.entries.entries import is_in_table
from pulsar_spark.storage.entries.slices import PositionRange, pieces_of, read_pieces, without_positions
from pulsar_spark.storage.entries.topic_files import is_there
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.store.store import store_of
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import HASH, KEY_COLUMNS
from pulsar_spark.transforms.delay_index import delayed_entries, in_files

_WRITTEN = {
    "compression": "zstd",
    "parquet.writer.version": "v2",
    "parquet.enable.dictionary#due_time": "false",
    "parquet.enable.dictionary#position": "false",
    "parquet.enable.dictionary#sticky_key_hash": "false",
    "parquet.block.row.count.limit": str(SEGMENT_ENTRIES),
    "parquet.page.write-checksum.enabled": "true",
}
"""As storage.delay_index.delay_segments writes them: numbers as differences, one segment per row group."""
_SETTINGS = {"spark.sql.files.ignoreMissingFiles": "true", "spark.sql.files.ignoreCorruptFiles": "true"}
"""Lost files are skipped; a consumer that is sent their entries finds out."""
_LEAST_FILE_ENTRIES = 1 << 19


class SparkBuild:
    def __init__(self, spark: SparkSession, table: DelayTable, places: Places):
        self._jobs = SideJobs(spark, "delay-index", _SETTINGS)
        self.cancel = self._jobs.cancel
        self._table, self._places = table, places

    def __call__(
        self, topic: Topic, runs: dict[int, list[Run]], parts: Mapping[int, Sequence[tuple[int, int]]]
    ) -> NewBucket:
        with self._jobs.described(f"delay index of {topic.name}") as spark:
            return self._written(spark, topic, runs, parts)

    def _written(
        self,
        spark: SparkSession,
        topic: Topic,
        runs: dict[int, list[Run]],
        parts: Mapping[int, Sequence[tuple[int, int]]],
    ) -> NewBucket:
        messages = without_positions(spark, _messages(spark, topic, runs), parts)
        entries = delayed_entries(messages, _delayed_after(spark, runs))
        total = sum(run.entries for of in runs.values() for run in of)
        tasks = spark.sparkContext.defaultParallelism
        files = max(-(-total // FILE_ENTRIES), min(tasks, -(-total // _LEAST_FILE_ENTRIES)))
        number, folder = self._table.new_folder()
        found: list[Statistics] = []
        names: list[str] = []
        moved: list[dict] = []
        with (
            removing(folder, moved),
            staged(
                in_files(entries, topic.topic_id, files), self._table.path, ("in_partition",), _WRITTEN, are_ms=True
            ) as written,
        ):
            for file in sorted(written, key=lambda file: file.place):
                partition = int(file.place.split("/")[0].removeprefix("in_partition="))
                names.append(file_name(footer_of(file.source), len(names)))
                moved.append({"path": names[-1]})
                store_of(folder).move(file.source, folder / names[-1])
                place = self._places.number(topic.topic_id, partition)
                found.append(_statistics(SegmentFile(folder / names[-1]), len(found), place))
        return NewBucket(number, folder, names, Statistics.joined(found))


def _messages(spark: SparkSession, topic: Topic, runs: dict[int, list[Run]]) -> DataFrame:
    """The rows of *runs* as they were published (storage.delay_index.delayed.deliver_times)."""
    version = TableLog(topic.path).latest()
    there = spark.read.format("delta").load(str(topic.path)).columns
    columns = ["batch_index", "deliver_at_time"]
    if any(run.has_keys for of in runs.values() for run in of) and HASH in there:
        columns += [HASH, *KEY_COLUMNS]
    ours, aside, files = [], [], []
    for partition, of in runs.items():
        for run in of:
            pieces = pieces_of(PositionRange(partition, run.first_position, run.last_position), [run])
            if is_in_table(topic.path, run) or not is_there(topic.path / run.path):
                ours += pieces
            else:
                aside += pieces
                files.append(run.path)
    messages = read_pieces(spark, topic, ours, columns, version=version)
    return messages.union(read_pieces(spark, topic, aside, columns, files=files)) if files else messages


def _delayed_after(spark: SparkSession, runs: dict[int, list[Run]]) -> DataFrame:
    rows = sorted({(partition, run.ledger_id, run.delayed_after) for partition, of in runs.items() for run in of})
    partitions, ledger_ids, instants = zip(*rows)
    return local_frame(
        spark,
        pa.table(
            {
                "partition": pa.array(partitions, pa.int32()),
                "ledger_id": pa.array(ledger_ids, pa.int64()),
                "delayed_after": pa.array(instants, pa.int64()),
            }
        ),
    )


def _statistics(file: SegmentFile, number: int, place: int) -> Statistics:
    rows = np.array([*file.bounds()], np.int64).reshape(-1, 4)
    same = np.full(len(rows), place, np.int32), np.full(len(rows), number, np.int32)
    return Statistics(*same, rows[:, 0].astype(np.int32), rows[:, 1], rows[:, 2], rows[:, 3])
