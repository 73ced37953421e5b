"""Few large chunked messages put together by Spark itself, from the files in which their chunks lie.

A Python worker hands bytes to the JVM at a third of the rate at which Spark reads them. So where messages are large and
few, and the heap has room, their chunks are read by Spark's own reader, and ``listagg`` joins them: a scan for each
task, with no shuffle, as a scan that is one partition needs none. Beside the chunks there is the row of the last chunk
of each message, for which a Python worker says whether all its chunks lie where they were published at that moment. If
not, the worker puts the message together, as it does everywhere else (chunk_payloads), and what was scanned of it goes.

A sketch of it on a very busy machine, a heap of 14 GiB, in the same minutes: seven messages of 64 MB at 160 to 200 MB/s
where workers gave 75 to 128 and a plain read 140 to 280; one of 1 GiB at 150 to 230 where workers gave 50 to 74 and a
plain read 290 to 430.

A task holds what it joins several times (transforms.chunks says which copies): so many bytes of heap are asked for. A
file that is damaged fails the job, as it does for messages in one piece.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.errors import UnreadableMessage
from pulsar_spark.frames.payloads import PAYLOAD_ERROR
from pulsar_spark.frames.published_files import is_plain
from pulsar_spark.protocol.chunking import WRONG_SIZE
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.lost import is_as_published
from pulsar_spark.storage.session import local_frame, runs_here
from pulsar_spark.storage.topic_files import partition_of
from pulsar_spark.storage.topics import Topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.transforms.chunks import SIZE, holdable
from pulsar_spark.transforms.stretches import numbers

GONE = "some of its chunks were deleted or rewritten since the frame was made"
LEAST_BYTES = 16 << 20
"""Of a message, on average: smaller ones come as quickly from Python workers."""
MOST_TASKS, MOST_CHUNKS = 16, 4096
HEAP_TIMES = 12
"""So many times what tasks that run side by side read is asked of the heap."""
_AROUND = 1.25
"""At most so much of what the messages have is read with them, as row groups are read as a whole."""


class _Message(NamedTuple):
    """Row *row* of the last chunks, of so many *bytes*, with the first and last entry id of each stretch of chunks in a
    run."""

    row: int
    bytes: int
    spans: list[tuple[Run, int, int]]

    @property
    def chunks(self) -> int:
        return sum(last - first + 1 for _, first, last in self.spans)


def scanned(
    spark: SparkSession, topic: Topic, rows: pa.Table, runs: Sequence[Run], whole: Callable[..., Column]
) -> DataFrame | None:
    """*rows*, of last chunks with ``parts``, where the chunks of each message lie (see chunk_payloads), with the
    ``payload`` of the message and :data:`PAYLOAD_ERROR`; None where they are not for Spark to put together. *whole* is
    what a worker says of a message: its payload, or why there is none, or neither where it is as it was published."""
    if not runs_here(spark):
        return None
    if not all(is_plain(topic.path, run) and is_as_published(topic.path, run) for run in runs):
        return None
    messages, cores = _messages(rows, runs), spark.sparkContext.defaultParallelism
    for count in (MOST_TASKS, cores):
        tasks = _tasks(messages, count)
        if tasks and _is_room(topic, tasks, cores, _heap_bytes(spark)):
            return reduce(DataFrame.unionByName, (_scan(spark, topic, rows, task, whole) for task in tasks))
    return None


def _messages(rows: pa.Table, runs: Sequence[Run]) -> list[_Message]:
    """In the order in which they lie in the files."""
    sizes = rows[SIZE].fill_null(0).to_pylist()
    found = []
    for row, parts in enumerate(rows["parts"].to_pylist()):
        held = [(runs[each["run"]], each["first"], each["last"]) for each in parts]
        spans = [(run, first - run.to_position, last - run.to_position) for run, first, last in held]
        found.append(_Message(row, sizes[row], spans))
    return sorted(found, key=lambda each: [(run.path, first) for run, first, _ in each.spans])


def _tasks(messages: Sequence[_Message], most: int) -> list[list[_Message]]:
    """Which messages are read together, in at *most* so many tasks of about as many bytes each; none where messages are
    too small or their chunks too many."""
    size = sum(each.bytes for each in messages)
    is_meant = messages and size >= LEAST_BYTES * len(messages) and all(each.bytes > 0 for each in messages)
    if not is_meant or sum(each.chunks for each in messages) > MOST_CHUNKS:
        return []
    count = min(len(messages), most)
    ends = np.cumsum([each.bytes for each in messages])
    of_task = np.minimum((ends - 1) * count // size, count - 1)
    bounds = np.flatnonzero(np.diff(of_task)) + 1
    return [list(map(messages.__getitem__, part)) for part in np.split(np.arange(len(messages)), bounds)]


def _is_room(topic: Topic, tasks: Sequence[Sequence[_Message]], cores: int, heap_bytes: int) -> bool:
    """Is what tasks read not much more than their messages, and for as many as there are cores room in the heap?"""
    said = [sum(each.bytes for each in task) for task in tasks]
    read = [max(_read_bytes(topic, task), bytes_) for task, bytes_ in zip(tasks, said, strict=True)]
    is_apart = sum(read) <= _AROUND * sum(said)
    return is_apart and HEAP_TIMES * sum(sorted(read)[-cores:]) <= heap_bytes


def _read_bytes(topic: Topic, task: Sequence[_Message]) -> int:
    """The bytes of payloads in the row groups that a task reads, as footers say: less where payloads are alike."""
    return sum(
        sum(bytes_ for low, high, bytes_ in _groups(f"{topic.path}/{path}") if low <= last and high >= first)
        for path, (first, last) in _bounds(task).items()
    )


def _groups(path: str) -> Iterator[tuple[int, int, int]]:
    """The least and greatest entry id, and the bytes of payloads, of each row group of a file; all ids where it does
    not say."""
    footer = pq.read_metadata(path)
    for group in map(footer.row_group, range(footer.num_row_groups)):
        columns = {each.path_in_schema: each for each in map(group.column, range(group.num_columns))}
        known = columns["entry_id"].statistics
        is_said = known is not None and known.has_min_max
        low, high = (known.min, known.max) if is_said else (0, 1 << 63)
        yield low, high, columns["payload"].total_uncompressed_size


def _bounds(task: Sequence[_Message]) -> dict[str, tuple[int, int]]:
    """The first and last entry id that is read of each file."""
    found: dict[str, tuple[int, int]] = {}
    for run, first, last in (span for message in task for span in message.spans):
        low, high = found.get(run.path, (first, last))
        found[run.path] = min(low, first), max(high, last)
    return found


def _heap_bytes(spark: SparkSession) -> int:
    """The largest heap of the session's JVM; none where it does not say."""
    try:
        return spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory()
    except Py4JError:
        return 0


def _scan(
    spark: SparkSession, topic: Topic, rows: pa.Table, task: Sequence[_Message], whole: Callable[..., Column]
) -> DataFrame:
    """The messages of one task: their rows and the rows of their chunks as one partition, grouped by message."""
    mine = rows.take(pa.array([each.row for each in task]))
    names = [name for name in rows.column_names if name != "parts"]
    numbered = mine.append_column("message", pa.array(range(len(task)), pa.int64()))
    numbered = numbered.append_column("expected", pa.array([each.chunks for each in task], pa.int64()))
    said = local_frame(spark, numbered).select(
        "message",
        F.struct(*names, "expected").alias("row"),
        whole("parts", SIZE).alias("whole"),
        *(
            F.lit(None).cast(kind).alias(name)
            for name, kind in (("at", "bigint"), ("piece", "binary"), (SIZE, "bigint"))
        ),
    )
    nothing = (F.lit(None).cast(said.schema[name].dataType).alias(name) for name in ("row", "whole"))
    chunks = _chunks(spark, topic, task).select("message", *nothing, "at", "piece", SIZE)
    of_row, of_whole = F.first("row", ignorenulls=True), F.first("whole", ignorenulls=True)
    joined = F.expr("listagg(piece) WITHIN GROUP (ORDER BY at)")
    grouped = said.union(chunks).coalesce(1).groupBy("message")
    found = grouped.agg(
        of_row.alias("row"),
        of_whole.alias("whole"),
        joined.alias("joined"),
        F.count("at").alias("chunks"),
        *(bound(SIZE).alias(name) for bound, name in ((F.min, "least"), (F.max, "most"))),
    )
    payload, error = (F.col("whole")[name] for name in ("payload", PAYLOAD_ERROR))
    wrong = _wrong()
    is_scanned = payload.isNull() & error.isNull()
    return found.select(
        *(F.col("row")[name].alias(name) for name in names),
        F.when(is_scanned & wrong.isNull(), F.coalesce("joined", F.lit(b""))).otherwise(payload).alias("payload"),
        F.when(is_scanned, wrong).otherwise(error).alias(PAYLOAD_ERROR),
    )


def _wrong() -> Column:
    """Why what was scanned of a message is not all of it; null where it is."""
    size = F.coalesce(F.octet_length("joined"), F.lit(0)).cast("bigint")
    said = F.when(F.col("least") != size, F.col("least")).otherwise(F.col("most"))
    text = F.when(F.col("chunks") != F.col("row")["expected"], F.lit(GONE))
    text = text.when(said != size, F.format_string(WRONG_SIZE, size, F.lit(""), said))
    return F.concat(F.lit(f"{UnreadableMessage.__name__}: "), text)


def _chunks(spark: SparkSession, topic: Topic, task: Sequence[_Message]) -> DataFrame:
    """The chunks of a task's messages: the number of the message in the task, the place among all of them, the payload
    as ``piece``, and what they say of the size."""
    bounds = _bounds(task)
    paths = list(bounds)
    firsts, lasts = np.array([*bounds.values()], np.int64).T
    begins = np.cumsum(lasts - firsts + 1) - (lasts - firsts + 1)
    to_key = begins - firsts
    keys = [
        (number, to_key[paths.index(run.path)] + entry_id)
        for number, message in enumerate(task)
        for run, first, last in message.spans
        for entry_id in range(first, last + 1)
    ]
    of_message, of_chunk = np.array(keys, np.int64).T
    names = F.array(*(F.lit(f"{partition_of(path)}/{path.rpartition('/')[2]}") for path in paths))
    name = F.concat_ws("/", F.col("partition").cast("string"), F.col("_metadata.file_name"))
    file = (F.array_position(names, name) - 1).cast("int")
    reader = spark.read.schema(from_arrow_schema(MESSAGES.schema)).option("basePath", str(topic.path))
    rows = reader.option("ignoreMissingFiles", True).parquet(*(f"{topic.path}/{path}" for path in paths))
    entry_id = F.col("entry_id")
    is_within = entry_id.between(F.get(numbers(firsts), file), F.get(numbers(lasts), file))
    at = F.array_position(numbers(of_chunk), entry_id + F.get(numbers(to_key), file)) - 1
    chunks = rows.filter(_around(bounds)).filter(is_within).select(at.alias("at"), holdable().alias("piece"), SIZE)
    of_message = F.get(numbers(of_message), F.col("at").cast("int")).alias("message")
    return chunks.filter(F.col("at") >= 0).select(of_message, "at", "piece", SIZE)


def _around(bounds: Mapping[str, tuple[int, int]]) -> Column:
    """Bounds for Parquet to pass over row groups by."""
    spans = set(bounds.values())
    if len(spans) > MOST_TASKS:
        spans = {(min(first for first, _ in spans), max(last for _, last in spans))}
    return F.expr(" or ".join(f"entry_id between {first} and {last}" for first, last in sorted(spans)))
