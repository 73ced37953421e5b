"""Turn message columns into rows of the messages table: partition, entry id, order.

An entry id is the write task << 33 plus a number dense within task and partition, so the ids of a partition in a file
are one run. With few partitions tasks write one file for each (see storage.delta.task_files); with many, or with
*sort_by_key*, rows are sorted first. Murmur3 routing computes the sticky-key hash, so it is stored; with other schemes
readers compute it."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.columns import sticky_key_hash
from pulsar_spark.frames.publishing.chunking import Chunking
from pulsar_spark.frames.publishing.message_columns import in_one_piece, instant, spark_type
from pulsar_spark.frames.publishing.routing_columns import routed
from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.protocol.keys.sticky_key import NONE_KEY
from pulsar_spark.protocol.topics.routing import HashingScheme
from pulsar_spark.storage.delta.data_files import BY_KEY_OPTIONS, MESSAGE_OPTIONS, ROW_GROUP_BYTES, spark_writer_options
from pulsar_spark.storage.delta.task_files import MOST_FILES, ByTasks
from pulsar_spark.table_specs import HASH, KEY_COLUMNS, KEY_FLAGS, MESSAGE_KEYS, MESSAGES
from pulsar_spark.transforms.key_hashes import hash_keys

_NUMBER = "monotonically_increasing_id()"
_MOST_BYTES = 2 * ROW_GROUP_BYTES
"""The most payload bytes that a task holds at once: one message for each file that it writes side by side."""


class Writing(NamedTuple):
    """How a publish writes its rows: to which *partitions*, whether the topic has any (*is_partitioned*), and the
    *largest* payload in bytes (None: no maximum)."""

    partitions: Sequence[int]
    is_partitioned: bool
    scheme: HashingScheme
    sort_by_key: bool
    splitting: Chunking | None
    largest: int | None
    is_on_disk: bool = True

    @property
    def files_at_once(self) -> int:
        """The number of files that a task itself writes side by side, one for each partition. 0 if Spark's writer
        writes: sorted rows, large payloads, chunks without partitions, and roots in a store."""
        files = len(self.partitions)
        fits = self.largest is not None and files <= MOST_FILES and files * self.largest <= _MOST_BYTES
        is_quicker = self.is_partitioned or self.splitting is None
        return files if self.is_on_disk and fits and is_quicker and not self.sort_by_key else 0

    @property
    def options(self) -> dict[str, str]:
        options = MESSAGE_OPTIONS | spark_writer_options(self.largest)
        return options | (BY_KEY_OPTIONS if self.sort_by_key else {})

    def rows(
        self, messages: DataFrame, given: set[str], publish_id: str, now: datetime
    ) -> tuple[DataFrame, ByTasks | None]:
        """Rows of the messages table for *messages* with the columns *given*, and how tasks write them (None: Spark's
        writer does). A payload above the largest fails the job. Columns not given stay out of the files."""
        has_keys = bool(given & {*MESSAGE_KEYS})
        if has_keys and (self.sort_by_key or self.scheme is HashingScheme.Murmur3_32Hash):
            messages, given = _with_sticky_key_hash(messages, given), {*given, HASH}
        if self.is_partitioned or "partition" in given:
            messages = routed(messages, given, self.partitions, self.scheme)
            given = {*given, "partition"}
        if self.splitting is not None:
            messages, given = self.splitting.split(messages, given, publish_id)
        number = _NUMBER
        if self.is_partitioned and self.files_at_once:
            cases = " ".join(f"when {partition} then {_NUMBER}" for partition in self.partitions)
            number = f"case partition {cases} end"  # a number for each partition
        elif by := ["partition"] * self.is_partitioned + [HASH] * (has_keys and self.sort_by_key):
            numbered = messages.withColumn("row", F.monotonically_increasing_id())
            messages = numbered.sortWithinPartitions(*by, "row").drop("row")
        by_tasks = ByTasks(self.files_at_once, _constants(publish_id, now, given)) if self.files_at_once else None
        # SQL texts, because each operator of a Column is a call to the JVM.
        texts = {
            "publish_id": f"X'{publish_id.encode().hex()}'",
            "entry_id": number,
            "batch_size": "1",
            "publish_time": instant(to_micros(now)),
            "partition": "-1",
            **dict(zip(given, given)),
        }
        if self.largest is not None and self.splitting is None:
            texts["payload"] = in_one_piece("payload", self.largest)
        names = (
            name for name in MESSAGES.schema.names if name in texts and not (by_tasks and name in by_tasks.constants)
        )
        columns = (f"cast({texts[name]} as {spark_type(name)}) as {name}" for name in names)
        return messages.selectExpr(*columns), by_tasks


def _constants(publish_id: str, now: datetime, given: set[str]) -> dict[str, pa.Scalar]:
    values = {"publish_id": publish_id, "batch_size": 1, "publish_time": now, "partition": -1}
    return {name: pa.scalar(values[name], MESSAGES.schema.field(name).type) for name in values.keys() - given}


def _with_sticky_key_hash(messages: DataFrame, given: set[str]) -> DataFrame:
    """*messages* with the sticky-key hash; Python decodes base64, because Spark fails if it is invalid."""
    if given.intersection(KEY_FLAGS):
        columns = (F.col(name) if name in given else F.lit(None) for name in KEY_COLUMNS)
        return messages.withColumn(HASH, sticky_key_hash(*columns))
    keys = [F.col(name).cast("binary") for name in ("ordering_key", "partition_key") if name in given]
    return hash_keys(messages, F.coalesce(*keys, F.lit(NONE_KEY)), HASH)
