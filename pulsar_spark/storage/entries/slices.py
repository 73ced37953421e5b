"""Read parts of a topic by position with Spark.

Ranges are cut into pieces of runs and read by literal bounds, which skip files and row groups; many pieces are joined.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import attrgetter, or_
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.positions import expanded
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import DELIVERED, MESSAGES

MAX_BOUNDS = 32
WIDE_GAP = 20_000
"""Entries between pieces from which separate bounds pay: a page of Spark's Parquet files."""
_BY_NAME = frozenset(MESSAGES.schema.names) - set(DELIVERED)


class PositionRange(NamedTuple):
    """Positions *first* to *last*, inclusive, of a partition, with the broker's state; no ``ack_set``: all messages."""

    partition: int
    first: int
    last: int
    redelivery_count: int = 0
    ack_set: tuple[int, ...] | None = None
    batch_size: int = 1

    @property
    def messages(self) -> int:
        """The number of unacknowledged messages in the range."""
        return (self.last - self.first + 1) * (
            self.batch_size if self.ack_set is None else ack_sets.count(self.ack_set)
        )


class Piece(NamedTuple):
    """Entries *first_entry_id* to *last_entry_id* of one publish: a range's part of a run."""

    partition: int
    ledger_id: int
    publish_id: str
    first_entry_id: int
    last_entry_id: int
    first_position: int
    redelivery_count: int
    ack_set: tuple[int, ...] | None


def pieces_of(range_: PositionRange, runs: Iterable[Run]) -> list[Piece]:
    return [
        _piece(range_, run, max(range_.first, run.first_position), min(range_.last, run.last_position)) for run in runs
    ]


def _piece(range_: PositionRange, run: Run, first: int, last: int) -> Piece:
    of_run = (range_.partition, run.ledger_id, run.publish_id, first - run.to_position, last - run.to_position)
    return Piece(*of_run, first, range_.redelivery_count, range_.ack_set)


def find_pieces(index: LedgerIndex, topic: Topic, ranges: Iterable[PositionRange]) -> list[Piece]:
    """The pieces of the disjoint *ranges* of *topic*; :class:`CorruptState` if a position has no run."""
    pieces = []
    for partition, of_partition in by_partition(ranges).items():
        spans = index.spans_of(topic.topic_id, partition, [(each.first, each.last) for each in of_partition])
        of_range = iter(of_partition)
        each = next(of_range)
        for run, parts in spans:
            for first, last in parts:
                while first > each.last:
                    each = next(of_range)
                pieces.append(_piece(each, run, first, last))
    return pieces


class MessagePieces(NamedTuple):
    """The pieces to read, and whether any may be a chunk or has a compressed or encrypted payload."""

    pieces: list[Piece]
    has_chunks: bool
    has_encoded: bool


def message_pieces(ledgers: Mapping[int, PartitionLedgers], ranges: Iterable[PositionRange]) -> MessagePieces:
    """The pieces of the messages in *ranges*, as far as *ledgers* (by partition) reach, with earlier chunks."""
    pieces, has_chunks, has_encoded = [], False, False
    for range_ in ranges:
        known = ledgers.get(range_.partition)
        if known is None or range_.first >= known.end_position:
            continue
        last = min(range_.last, known.end_position - 1)
        chunked = next((run for run in known.parts(range_.first, last) if run.may_have_chunks), None)
        if chunked is not None:
            range_, has_chunks = range_._replace(first=min(range_.first, chunked.chunks_from or 0)), True
        pieces += pieces_of(range_, known.parts(range_.first, last))
        has_encoded |= any(run.has_encoded for run in known.parts(range_.first, last))
    return MessagePieces(pieces, has_chunks, has_encoded)


def by_partition(ranges: Iterable[PositionRange]) -> dict[int, list[PositionRange]]:
    """Each partition's ranges by position; overlaps are cut from the later."""
    found: dict[int, list[PositionRange]] = {}
    for range_ in sorted(ranges, key=attrgetter("partition", "first")):
        others = found.setdefault(range_.partition, [])
        end = others[-1].last + 1 if others else range_.first
        if range_.last >= end:
            others.append(range_ if range_.first >= end else range_._replace(first=end))
    return found


def read_pieces(
    spark: SparkSession,
    topic: Topic,
    found: list[Piece],
    columns: Sequence[str] | None = None,
    with_payload: bool = True,
    version: int | None = None,
    without: Collection[str] = (),
    with_chunks: bool = True,
    files: Sequence[str] = (),
    where: Column | None = None,
) -> DataFrame:
    """The messages of *topic* in the pieces *found*, one row each, in no order, without those outside the ack set.

    Columns: those of the messages table (or *columns* and ``partition``), without the payload unless *with_payload*,
    then ``ledger_id``, ``position``, ``redelivery_count``. Columns that the topic lacks are null.

    - *version*: of the table as it was then.
    - *files*: of these in its folder instead.
    - *without*: not of these, which hold copies of rows.
    - *with_chunks*: with chunks.
    - *where*: a filter applied first.
    """
    reader = spark.read.format("delta")
    messages = (reader if version is None else reader.option("versionAsOf", version)).load(str(topic.path))
    if files:
        named = spark.read.schema(messages.schema).option("basePath", str(topic.path))
        messages = named.parquet(*(str(topic.path / file) for file in files))
    if where is not None:
        messages = messages.filter(where)
    if not with_chunks:
        messages = messages.filter(F.col("uuid").isNull() | F.col("batch_index").isNotNull())
    if without:
        messages = messages.filter(
            ~F.element_at(F.split("_metadata.file_path", "/"), -1).isin([path.rpartition("/")[2] for path in without])
        )
    names = [
        name
        for name in columns or [name for name in messages.columns if name not in _BY_NAME]
        if (with_payload or name != "payload") and name != "partition"
    ] + ["partition"]
    located = _by_bounds(messages, found) if len(found) <= MAX_BOUNDS else _by_join(spark, messages, found)
    return located.select(*names, "ledger_id", "position", "redelivery_count")


def _by_bounds(messages: DataFrame, found: list[Piece]) -> DataFrame:
    if not found:
        nothing = F.lit(None).cast("bigint")
        return _with_place(messages.filter(F.lit(False)), nothing, nothing, F.lit(None).cast("int"))
    alike: dict[tuple, list[Piece]] = {}
    for piece in found:
        shift = piece.first_position - piece.first_entry_id
        alike.setdefault((piece.publish_id, piece.partition, shift, *piece[6:], piece.ledger_id), []).append(piece)
    inside = [_is_in(pieces) for pieces in alike.values()]
    places = [
        F.struct(
            F.lit(piece.ledger_id).cast("bigint").alias("ledger_id"),
            F.lit(piece.first_position - piece.first_entry_id).cast("bigint").alias("shift"),
            F.lit(piece.redelivery_count).alias("redelivery_count"),
        )
        for piece, *_ in alike.values()
    ]
    place = places[0]
    if len(places) > 1:
        place = F.when(inside[0], place)
        for is_in, of_piece in zip(inside[1:], places[1:], strict=True):
            place = place.when(is_in, of_piece)
    located = messages.filter(reduce(or_, inside)).withColumn("place", place)
    return _with_place(
        located, F.col("place.ledger_id"), F.col("place.shift") + F.col("entry_id"), F.col("place.redelivery_count")
    )


def _is_in(pieces: Sequence[Piece]) -> Column:
    """Is a row in any of *pieces*, of one publish, partition and ack set? One SQL expression is quickest to build."""
    publish_id, partition, ack_set = pieces[0].publish_id, pieces[0].partition, pieces[0].ack_set
    bounds = (f"entry_id between {piece.first_entry_id} and {piece.last_entry_id}" for piece in pieces)
    inside = (
        (F.col("publish_id") == publish_id) & F.expr(f"({' or '.join(bounds)})") & (F.col("partition") == partition)
    )
    if ack_set is None:
        return inside
    return inside & _is_unacked(F.array(*(F.lit(word).cast("bigint") for word in ack_set)))


def _is_unacked(ack_set: Column) -> Column:
    """Is the message's bit set? A message outside a batch is bit 0."""
    index = F.coalesce(F.col("batch_index"), F.lit(0))
    word = F.get(ack_set, F.floor(index / 64).cast("int"))
    return F.coalesce(F.getbit(word, index % 64) == 1, F.lit(False))


def _by_join(spark: SparkSession, messages: DataFrame, found: list[Piece]) -> DataFrame:
    firsts, lasts = (
        np.array([getattr(piece, name) for piece in found]) for name in ("first_entry_id", "last_entry_id")
    )
    bits, whole, blocks = _blocks(firsts, lasts)
    rows = pa.table(
        {
            "piece_partition": pa.array([piece.partition for piece in found], pa.int32()),
            "piece_publish_id": pa.array([piece.publish_id for piece in found]),
            "piece_first": firsts,
            "piece_last": lasts,
            "piece_ledger_id": pa.array([piece.ledger_id for piece in found], pa.int64()),
            "piece_shift": pa.array([piece.first_position - piece.first_entry_id for piece in found], pa.int64()),
            "piece_redelivery_count": pa.array([piece.redelivery_count for piece in found], pa.int32()),
            "piece_ack_set": pa.array([piece.ack_set for piece in found], pa.list_(pa.int64())),
        }
    ).take(whole)
    rows = rows.append_column("piece_block", blocks)
    is_in_piece = (
        (F.col("publish_id") == F.col("piece_publish_id"))
        & (F.col("partition") == F.col("piece_partition"))
        & (F.shiftright("entry_id", bits) == F.col("piece_block"))
        & F.col("entry_id").between(F.col("piece_first"), F.col("piece_last"))
        & (F.col("piece_ack_set").isNull() | _is_unacked(F.col("piece_ack_set")))
    )
    bounded = messages.filter(_around(found, firsts, lasts))
    located = bounded.join(F.broadcast(local_frame(spark, rows)), on=is_in_piece, how="inner")
    return _with_place(
        located, F.col("piece_ledger_id"), F.col("piece_shift") + F.col("entry_id"), F.col("piece_redelivery_count")
    )


def _blocks(firsts: np.ndarray, lasts: np.ndarray) -> tuple[int, pa.Array, pa.Array]:
    """Cut ranges at blocks about as long as they are; a block's bits, then each part's range index and block."""
    bits = int((lasts - firsts + 1).mean()).bit_length() - 1
    blocks = expanded(firsts >> bits, lasts >> bits)
    counts = (lasts >> bits) - (firsts >> bits) + 1
    return bits, pa.array(np.repeat(np.arange(len(firsts)), counts)), pa.array(blocks)


def without_positions(
    spark: SparkSession, messages: DataFrame, holes: Mapping[int, Sequence[tuple[int, int]]]
) -> DataFrame:
    """*messages*, which have ``partition`` and ``position``, except those in *holes*: (first, last) by partition."""
    rows = [(partition, first, last) for partition, each in holes.items() for first, last in each]
    if not rows:
        return messages
    partitions, firsts, lasts = np.array(rows, np.int64).T
    bits, whole, blocks = _blocks(firsts, lasts)
    columns = {"hole_partition": partitions, "hole_first": firsts, "hole_last": lasts}
    table = pa.table({name: pa.array(column).take(whole) for name, column in columns.items()} | {"hole_block": blocks})
    is_in_hole = (
        (F.col("partition") == F.col("hole_partition"))
        & (F.shiftright("position", bits) == F.col("hole_block"))
        & F.col("position").between(F.col("hole_first"), F.col("hole_last"))
    )
    return messages.join(F.broadcast(local_frame(spark, table)), on=is_in_hole, how="left_anti")


def _around(found: list[Piece], firsts: np.ndarray, lasts: np.ndarray) -> Column:
    """At most :data:`MAX_BOUNDS` bounds around clusters of pieces; with more publishes, bounds of the publish id."""
    places, groups = np.unique([f"{piece.publish_id}{piece.partition}" for piece in found], return_inverse=True)
    if len(places) > MAX_BOUNDS:
        publish_ids, partitions = {piece.publish_id for piece in found}, {piece.partition for piece in found}
        return F.col("publish_id").between(min(publish_ids), max(publish_ids)) & F.col("partition").isin(*partitions)
    in_order = np.lexsort((firsts, groups))
    firsts, lasts, groups = firsts[in_order], lasts[in_order], groups[in_order]
    gaps = np.where(groups[1:] == groups[:-1], firsts[1:] - lasts[:-1], 0)
    widest = np.argsort(-gaps, kind="stable")[: MAX_BOUNDS - len(places)]
    is_first = np.append(True, groups[1:] != groups[:-1])
    is_first[1 + widest[gaps[widest] > WIDE_GAP]] = True
    starts, bounds = np.flatnonzero(is_first), dict[int, list[Piece]]()
    for start, last in zip(starts.tolist(), np.maximum.reduceat(lasts, starts).tolist()):
        bound = found[in_order[start]]._replace(last_entry_id=last, ack_set=None)
        bounds.setdefault(int(groups[start]), []).append(bound)
    return reduce(or_, map(_is_in, bounds.values()))


def _with_place(located: DataFrame, ledger_id: Column, position: Column, redelivery_count: Column) -> DataFrame:
    return located.withColumns({"ledger_id": ledger_id, "position": position, "redelivery_count": redelivery_count})
