"""Rows of the messages table, as a publish writes them, from message columns: which partition, which number, in which
order.

**Numbers without a counting pass.** An entry id is the write task << 33 plus a number dense within the task and the
partition, in the order the frame had its rows, so that the ids of one partition in one file are one run: its smallest
id and its row count number it. A topic without partitions is neither routed nor sorted: its publish is a plain append.
Nor is one with few partitions sorted: a task counts each of them by itself, and writes its files side by side (see
storage.task_files). Rows of more of them, and rows in order of their keys' hash, are sorted by partition first: by
profile of 10^6 x 100 B to 4 partitions that is a fifth of a task's time and more.

**Code that is compiled once.** Spark writes numbers and instants into the code that it generates, and not texts and
arrays. An instant of a publish is one of an array, so all publishes of frames that are alike run the code that was
compiled for the first (see transforms.stretches).

**Keys.** A frame that is routed by Murmur3 says of each message the hash that Key_Shared goes by, which is the same, so
that no round has to read and hash the keys; with another scheme the column is left out, for with it a publish of 10^6
messages falls from 0.94 to 0.61 of the rate of a plain append (where nothing but the hash is computed it doubles the
time), and not every topic has a Key_Shared subscription. On one that has, choose Murmur3: a round that has to compute
the hashes takes ten times as long to know them (2.2 s instead of 0.2, both on a busy machine). Whoever publishes for
Key_Shared may have each task's rows sorted by that hash (*sort_by_key*): then the messages of a consumer's hashes lie
together, in few ranges; who reads them reads all pages all the same (see published_files). The messages of a key keep
the frame's order, those of a partition do not, so it is not done unasked; and it takes 0.5 to 0.8 s of 10^6.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.columns import sticky_key_hash
from pulsar_spark.frames.chunking import Chunking
from pulsar_spark.frames.message_columns import in_one_piece, instant, spark_type
from pulsar_spark.frames.routing_columns import routed
from pulsar_spark.protocol.instants import to_micros
from pulsar_spark.protocol.routing import HashingScheme
from pulsar_spark.protocol.sticky_key import NONE_KEY
from pulsar_spark.storage.data_files import BY_KEY_OPTIONS, MESSAGE_OPTIONS, ROW_GROUP_BYTES, spark_writer_options
from pulsar_spark.storage.task_files import MOST_FILES, ByTasks
from pulsar_spark.table_specs import HASH, KEY_COLUMNS, KEY_FLAGS, MESSAGE_KEYS, MESSAGES
from pulsar_spark.transforms.key_hashes import hash_keys

_NUMBER = "monotonically_increasing_id()"
_MOST_BYTES = 2 * ROW_GROUP_BYTES
"""Of a message for each of the files that a task writes side by side, which it holds at once."""


class Writing(NamedTuple):
    """How the rows of a publish are written. *partitions* are those that it may write to, *is_partitioned* says whether
    the topic has any, *largest* how many bytes of payload a row has at most, None for any number."""

    partitions: Sequence[int]
    is_partitioned: bool
    scheme: HashingScheme
    sort_by_key: bool
    splitting: Chunking | None
    largest: int | None
    is_on_disk: bool = True

    @property
    def files_at_once(self) -> int:
        """How many files a task writes itself, side by side, at most: one for each partition, or one. 0 where Spark's
        writer does: of rows to sort, of payloads too large for a worker to hold, of chunks without a partition, which
        it writes no slower, and into a store, of which a worker has no keys."""
        files = len(self.partitions)
        fits = self.largest is not None and files <= MOST_FILES and files * self.largest <= _MOST_BYTES
        is_quicker = self.is_partitioned or self.splitting is None
        return files if self.is_on_disk and fits and is_quicker and not self.sort_by_key else 0

    @property
    def options(self) -> dict[str, str]:
        """Of Spark's writer."""
        options = MESSAGE_OPTIONS | spark_writer_options(self.largest)
        return options | (BY_KEY_OPTIONS if self.sort_by_key else {})

    def rows(
        self, messages: DataFrame, given: set[str], publish_id: str, now: datetime
    ) -> tuple[DataFrame, ByTasks | None]:
        """Rows of the messages table for *messages*, which have the columns *given*, and how tasks write them, None
        where Spark's writer does; a payload above the largest fails the job that writes it. Columns nobody gave are
        left out of the files, where they would be null: writing them and their statistics took a quarter of a publish's
        time."""
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
            number = _number_in_partition(self.partitions)
        else:
            by = ["partition"] * self.is_partitioned + [HASH] * (has_keys and self.sort_by_key)
            messages = _in_order(messages, by)
        by_tasks = ByTasks(self.files_at_once, _constants(publish_id, now, given)) if self.files_at_once else None
        # Texts, because a Column is a call to the JVM for each of its operators.
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
    """Columns that say the same of all messages of a publish."""
    values = {"publish_id": publish_id, "batch_size": 1, "publish_time": now, "partition": -1}
    return {name: pa.scalar(values[name], MESSAGES.schema.field(name).type) for name in values.keys() - given}


def _number_in_partition(partitions: Sequence[int]) -> str:
    """The write task << 33 plus the row's number among those of its partition in the task: each branch counts the rows
    that it is asked for, and no others."""
    return f"case partition {' '.join(f'when {partition} then {_NUMBER}' for partition in partitions)} end"


def _in_order(messages: DataFrame, by: Sequence[str]) -> DataFrame:
    """*messages*, those of each task sorted by these columns and otherwise as they were."""
    if not by:
        return messages
    in_order = messages.withColumn("row", F.monotonically_increasing_id())
    return in_order.sortWithinPartitions(*by, "row").drop("row")


def _with_sticky_key_hash(messages: DataFrame, given: set[str]) -> DataFrame:
    """*messages* with the hash that Key_Shared goes by; Python decodes what came encoded, as Spark refuses a row whose
    base64 is none."""
    if given.intersection(KEY_FLAGS):
        columns = (F.col(name) if name in given else F.lit(None) for name in KEY_COLUMNS)
        return messages.withColumn(HASH, sticky_key_hash(*columns))
    keys = [F.col(name).cast("binary") for name in ("ordering_key", "partition_key") if name in given]
    return hash_keys(messages, F.coalesce(*keys, F.lit(NONE_KEY)), HASH)
