"""Join the payloads of chunked messages in Python workers, where the rows of their last chunks are read.

The chunks of each message (see chunk_groups) and the row of its last one (see last_chunks) are known before, so
payloads are not shuffled. A message that cannot be joined is an error of its own; chunks that OPTIMIZE moved are found.
A filter on the payload makes Spark read it twice."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.columns import arrow_udf
from pulsar_spark.errors import MessagesLost, UnreadableMessage
from pulsar_spark.frames.reading.last_chunks import names_of, read_last_chunks
from pulsar_spark.frames.reading.payload_batches import in_pieces
from pulsar_spark.payloads.encoding import PAYLOAD_ERROR
from pulsar_spark.protocol.acknowledgement.positions import distinct, expanded, ranges_of
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_rows import SpansOf
from pulsar_spark.storage.chunks.chunks import ChunkedMessages, PayloadMemory
from pulsar_spark.storage.entries.entries import CACHED_BYTES, EntryReader
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.transforms.chunks import MOST_BYTES, SIZE, TOO_LARGE

GONE = "some of its chunks were deleted or rewritten since the frame was made"
NOTHING = -(1 << 63)
_AS_TEXT = pa.struct({"payload": pa.string(), PAYLOAD_ERROR: pa.string()})
_HALVES = ("begin", "end")
_IN_HALVES_TYPE = f"struct<begin: string, end: string, {PAYLOAD_ERROR}: string>"
"""The type that workers return. Spark copies binary out of Arrow's memory, but not text, and does not check text. Its
row buffer doubles when it is too small: after the first half of a payload, the second fits exactly."""
_PLACE = ("partition", "position")
_SPAN = pa.struct({"run": pa.int32(), "first": pa.int64(), "last": pa.int64()})


class Sizes(NamedTuple):
    """Of each chunk its payload's bytes, and the total that it states for its message (:data:`NOTHING` for null)."""

    payload_bytes: np.ndarray
    stated: np.ndarray


class Parts(NamedTuple):
    """Chunks in *partition*: their positions, those of their messages' last chunks, and *sizes* if they were read.
    *payloads* are kept only if small."""

    partition: int
    positions: np.ndarray
    lasts: np.ndarray
    sizes: Sizes | None = None
    payloads: pa.BinaryArray | None = None

    @classmethod
    def of(cls, partition: int, found: dict[int, np.ndarray]) -> "Parts":
        """Parts from chunk positions by the position of the last chunk."""
        sizes = [len(parts) for parts in found.values()]
        positions = np.concatenate([np.zeros(0, np.int64), *found.values()])
        return cls(partition, positions, np.repeat(np.array([*found], np.int64), sizes))

    def of_messages(self, lasts: Sequence[int]) -> "Parts":
        is_selected = np.isin(self.lasts, lasts)
        sizes = None if self.sizes is None else Sizes(*(each[is_selected] for each in self.sizes))
        payloads = None if self.payloads is None else self.payloads.filter(pa.array(is_selected))
        return Parts(self.partition, self.positions[is_selected], self.lasts[is_selected], sizes, payloads)

    @property
    def begins(self) -> np.ndarray:
        return np.flatnonzero(np.diff(self.lasts, prepend=-1))

    def by_message(self) -> Iterator[tuple[int, np.ndarray]]:
        begins = self.begins
        yield from zip(self.lasts[begins].tolist(), np.split(self.positions, begins[1:]) if len(begins) else ())


def with_payloads(
    spark: SparkSession,
    topic: Topic,
    parts: Sequence[Parts],
    spans_of: Callable[[int], SpansOf],
    columns: Sequence[str] | None,
    many: Callable[[], DataFrame],
    redelivery_counts: Mapping[tuple[int, int], int] = MappingProxyType({}),
) -> DataFrame:
    """The messages of *parts*, one row each: the row of the last chunk, as storage.entries.slices.read_pieces gives it
    for *columns*, with the whole ``payload`` or :data:`PAYLOAD_ERROR`.

    *spans_of* gives the runs of a partition. *many* gives these rows as a frame, if they are too many for the driver
    (see last_chunks)."""
    names = names_of(columns)
    read = list(dict.fromkeys([*names[:-4], SIZE]))
    lasts = {each.partition: distinct(each.lasts) for each in parts}
    last_chunks = read_last_chunks(topic, lasts, spans_of, read, redelivery_counts)
    if last_chunks is not None and all(each.payloads is not None for each in parts):
        rows = _beside(last_chunks, _joined(parts))
        return local_frame(spark, rows).select(*names, F.lit(None).cast("string").alias(PAYLOAD_ERROR))
    known, runs = _where(parts, spans_of)
    if last_chunks is None:
        of_messages = F.broadcast(local_frame(spark, known))
        found = many().drop("payload").join(of_messages, on=[*_PLACE], how="inner")
    else:
        found = local_frame(spark, _beside(last_chunks, known))
    whole = found.withColumn("whole", _function(topic.path, runs)("parts", SIZE))
    payload = F.concat(*(F.col("whole")[half] for half in _HALVES)).cast("binary")
    error = F.col("whole")[PAYLOAD_ERROR]
    return whole.select(
        *(payload.alias(name) if name == "payload" else F.col(name) for name in names), error.alias(PAYLOAD_ERROR)
    )


def _joined(parts: Sequence[Parts]) -> pa.Table:
    found = [_of_messages([], [], "payload", pa.array([], pa.binary()))]
    for each in parts:
        begins = each.begins
        of_message = pa.ListArray.from_arrays(pa.array([*begins, len(each.lasts)], pa.int32()), each.payloads)
        whole = pc.binary_join(of_message, b"")
        found.append(_of_messages([each.partition] * len(begins), each.lasts[begins], "payload", whole))
    return pa.concat_tables(found)


def _where(parts: Sequence[Parts], spans_of: Callable[[int], SpansOf]) -> tuple[pa.Table, list[Run]]:
    """The runs, and for each message the spans of its chunks in them, by the run's index."""
    runs: dict[tuple, tuple[int, Run]] = {}
    rows = [
        (each.partition, last, _spans(spans_of(each.partition)(ranges_of(positions)), runs))
        for each in parts
        for last, positions in each.by_message()
    ]
    partitions, lasts, spans = zip(*rows) if rows else [()] * 3
    known = _of_messages(partitions, lasts, "parts", pa.array(spans, pa.list_(_SPAN)))
    return known, [run for _, run in runs.values()]


def _of_messages(partitions: Sequence[int], lasts: Sequence[int], name: str, values: pa.Array) -> pa.Table:
    places = (pa.array(partitions, pa.int32()), pa.array(lasts, pa.int64()))
    return pa.Table.from_arrays([*places, values], names=[*_PLACE, name])


def _beside(last_chunks: pa.Table, known: pa.Table) -> pa.Table:
    places = [zip(*(table[name].to_pylist() for name in _PLACE)) for table in (known, last_chunks)]
    at = {place: row for row, place in enumerate(places[0])}
    rows, name = pa.array([at[place] for place in places[1]], pa.int64()), known.column_names[-1]
    return last_chunks.append_column(name, known[name].combine_chunks().take(rows))


def _spans(
    run_spans: Iterable[tuple[Run, list[tuple[int, int]]]], runs: dict[tuple, tuple[int, Run]]
) -> list[dict[str, int]]:
    found = []
    for run, spans in run_spans:
        number, _ = runs.setdefault((run.path, run.publish_id, run.first_position), (len(runs), run))
        found += [{"run": number, "first": first, "last": last} for first, last in spans]
    return found


def _function(table: AnyPath, runs: Sequence[Run]) -> Callable[..., Column]:
    def whole(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        entries, memory = EntryReader(CACHED_BYTES), PayloadMemory()
        for batch in batches:
            for piece in in_pieces(_payloads(table, entries, memory, runs, *batch), _AS_TEXT):
                yield _in_halves(piece)

    return arrow_udf(whole, _IN_HALVES_TYPE)


def _in_halves(piece: pa.StructArray) -> pa.StructArray:
    """*piece* with a single payload cut into two halves without a copy; otherwise the second half is empty."""
    payloads, errors = piece.flatten()
    halves, (*_, content) = [payloads, pa.array([""] * len(payloads))], payloads.buffers()
    if len(payloads) == 1 and not payloads.null_count and content is not None:
        cut = content.size // 2
        halves = [_text(content.slice(begin, end - begin)) for begin, end in ((0, cut), (cut, content.size))]
    return pa.StructArray.from_arrays([*halves, errors], names=[*_HALVES, PAYLOAD_ERROR])


def _text(content: pa.Buffer) -> pa.StringArray:
    ends = pa.py_buffer(np.array([0, content.size], np.int32))
    return pa.Array.from_buffers(pa.string(), 1, [None, ends, content])


def _payloads(
    table: AnyPath,
    entries: EntryReader,
    memory: PayloadMemory,
    runs: Sequence[Run],
    parts: pa.ListArray,
    sizes: pa.Array,
) -> Iterator[tuple[bytes | memoryview | None, str | None]]:
    for spans, size in zip(parts.to_pylist(), sizes.to_pylist(), strict=True):
        if (size or 0) > MOST_BYTES:
            yield None, f"{UnreadableMessage.__name__}: {TOO_LARGE % size}"
            continue
        run_spans = [(runs[each["run"]], [(each["first"], each["last"])]) for each in spans]
        positions = expanded(*(np.array([each[name] for each in spans]) for name in ("first", "last")))
        try:
            payload = ChunkedMessages(table, entries, lambda _: run_spans).joined(positions, MOST_BYTES, memory)
        except (UnreadableMessage, MessagesLost) as failed:
            yield None, f"{type(failed).__name__}: {failed}"
            continue
        yield payload, None if payload is not None else f"{UnreadableMessage.__name__}: {GONE}"
