"""Payloads of chunked messages, put together where the rows of their last chunks are read.

Which chunks make up a message is found before, by a ``groupBy`` on uuid over columns of a few bytes (see chunk_groups).
Spark then reads of each message the row of its last chunk without the payload, and a Python worker reads the payload,
as a client does (:meth:`ChunkedMessages.joined`): a row group after the other, once for all messages that lie in it. So
no payload is shuffled, none is read where nobody asks for the column, and what cannot be put together is an
error of its message alone.

But for the grouping, 448 MB in messages of 64 MB take 1.3 s on two quiet cores: 0.45 s until tasks start (plainly
reading the same Parquet 0.12 s), then 450 MB/s through the workers (plainly 2 GB/s, as nothing leaves the JVM; a worker
that reads a file and hands it over as it is 700 to 870 MB/s on busy cores); with ``listagg`` and its shuffle 2.4 s.
Fewer tasks, or sockets of the file system to the worker, made no difference. A message of 1 GiB takes a worker 1.6
times its size, the JVM once outside the heap and, of a heap of 4 GiB, all: the payload, and a row that Spark makes
larger by doubling. A filter on the payload has Spark read it twice.

Chunks are read when the rows are: one that was deleted or rewritten since the frame was made makes its message an
error, and one that OPTIMIZE has moved is found where it is now.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf

from pulsar_spark.errors import MessagesLost, UnreadableMessage
from pulsar_spark.frames.payload_batches import in_pieces
from pulsar_spark.frames.payloads import PAYLOAD_ERROR, PLAIN, PLAIN_TYPE
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.protocol.positions import expanded, ranges_of
from pulsar_spark.storage.chunks import ChunkedMessages, SpansOf
from pulsar_spark.storage.entries import CACHED_BYTES, EntryReader
from pulsar_spark.transforms.chunks import MOST_BYTES, SIZE, TOO_LARGE

GONE = "some of its chunks were deleted or rewritten since the frame was made"
_SPAN = pa.struct({"run": pa.int32(), "first": pa.int64(), "last": pa.int64()})


class Parts(NamedTuple):
    """Positions of chunks in *partition* and, of each, that of its message's last one."""

    partition: int
    positions: np.ndarray
    lasts: np.ndarray

    @classmethod
    def of(cls, partition: int, found: dict[int, np.ndarray]) -> "Parts":
        """Of messages, by the position of the last chunk."""
        sizes = [len(parts) for parts in found.values()]
        positions = np.concatenate([np.zeros(0, np.int64), *found.values()])
        return cls(partition, positions, np.repeat(np.array([*found], np.int64), sizes))

    def of_messages(self, lasts: Sequence[int]) -> "Parts":
        """Those of the messages that end at *lasts*."""
        is_asked = np.isin(self.lasts, lasts)
        return self._replace(positions=self.positions[is_asked], lasts=self.lasts[is_asked])

    def by_message(self) -> Iterator[tuple[int, np.ndarray]]:
        """The last chunk of each message, and all of its chunks, in order."""
        begins = np.flatnonzero(np.diff(self.lasts, prepend=-1))
        yield from zip(self.lasts[begins].tolist(), np.split(self.positions, begins[1:]) if len(begins) else ())


def with_payloads(
    spark: SparkSession, last_chunks: DataFrame, table: Path, parts: Iterable[Parts], spans_of: Callable[[int], SpansOf]
) -> DataFrame:
    """Of *last_chunks*, rows of the topic's *table* with ``partition``, ``position`` and ``total_chunk_msg_size``,
    those with which the messages of *parts* end, with the ``payload`` of the whole message, and
    :data:`PAYLOAD_ERROR`, which says why it is null. *spans_of* tells the runs of a partition."""
    runs: dict[tuple, tuple[int, Run]] = {}
    rows = [
        (each.partition, last, _spans(spans_of(each.partition)(ranges_of(positions)), runs))
        for each in parts
        for last, positions in each.by_message()
    ]
    types = {"partition": pa.int32(), "position": pa.int64(), "parts": pa.list_(_SPAN)}
    columns = zip(types.items(), zip(*rows) if rows else [()] * 3, strict=True)
    known = spark.createDataFrame(pa.table({name: pa.array(values, kind) for (name, kind), values in columns}))
    found = last_chunks.join(F.broadcast(known), on=["partition", "position"], how="inner")
    whole = found.withColumn("whole", _function(table, [run for _, run in runs.values()])("parts", SIZE))
    values = {name: F.col("whole")[name] for name in ("payload", PAYLOAD_ERROR)}
    return whole.withColumns(values).drop("whole", "parts")


def _spans(
    held: Iterable[tuple[Run, list[tuple[int, int]]]], runs: dict[tuple, tuple[int, Run]]
) -> list[dict[str, int]]:
    found = []
    for run, spans in held:
        number, _ = runs.setdefault((run.path, run.publish_id, run.first_position), (len(runs), run))
        found += [{"run": number, "first": first, "last": last} for first, last in spans]
    return found


def _function(table: Path, runs: Sequence[Run]) -> Callable[..., Column]:
    def whole(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        entries = EntryReader(CACHED_BYTES)
        for batch in batches:
            yield from in_pieces(_payloads(table, entries, runs, *batch), PLAIN)

    return arrow_udf(whole, PLAIN_TYPE)


def _payloads(
    table: Path, entries: EntryReader, runs: Sequence[Run], parts: pa.ListArray, sizes: pa.Array
) -> Iterator[tuple[bytes | None, str | None]]:
    """The payload of each message, or why there is none."""
    for spans, size in zip(parts.to_pylist(), sizes.to_pylist(), strict=True):
        if (size or 0) > MOST_BYTES:
            yield None, f"{UnreadableMessage.__name__}: {TOO_LARGE % size}"
            continue
        held = [(runs[each["run"]], [(each["first"], each["last"])]) for each in spans]
        positions = expanded(*(np.array([each[name] for each in spans]) for name in ("first", "last")))
        try:
            payload = ChunkedMessages(table, entries, lambda _, held=held: held).joined(positions, MOST_BYTES)
        except (UnreadableMessage, MessagesLost) as failed:
            yield None, f"{type(failed).__name__}: {failed}"
            continue
        yield payload, None if payload is not None else f"{UnreadableMessage.__name__}: {GONE}"
