"""Read a topic's messages as a frame, one row each, with positions."""

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.client.model.enums import ConsumerCryptoAction
from pulsar_spark.frames.reading.chunk_groups import grouped_parts
from pulsar_spark.frames.reading.chunk_payloads import with_payloads
from pulsar_spark.frames.reading.lost_chunks import LostEntries
from pulsar_spark.frames.reading.payload_batches import KeyReader
from pulsar_spark.frames.reading.payloads import Decoding
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS, PAYLOAD_ERROR
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import check_opens
from pulsar_spark.storage.entries.slices import Piece, PositionRange, pieces_of, read_pieces
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import ledgers_until
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.spark.spark_root import layout_for_frames
from pulsar_spark.storage.topics.topics import Topic, resolve_topic
from pulsar_spark.table_specs import DELIVERED, KEY_FLAGS
from pulsar_spark.transforms.chunks import is_chunk


def read_messages(
    spark: SparkSession,
    root: str | os.PathLike,
    topic: str,
    *,
    crypto_key_reader: KeyReader | None = None,
    crypto_failure_action: ConsumerCryptoAction = "FAIL",
    is_read_compacted: bool = False,
) -> DataFrame:
    """Read every message that *topic* of *root*, or one partition of it, has now: one row each, in no order.

    *spark* reads it; no broker is needed. The columns are those of the topic's table, ``ledger_id``, ``position`` and
    ``payload_error``. Payloads are decompressed and decrypted; *crypto_key_reader* and *crypto_failure_action* are
    those of :func:`decode_payloads`. A payload that cannot be read is null and has a ``payload_error``.

    A complete chunked message is one row, with the position and columns of its last chunk and the whole payload; null
    if the sizes of its chunks contradict its metadata. An incomplete one, or one with a deleted chunk, has no row (see
    the view ``chunks``). A lost entry that may have been a chunk has a row with a ``payload_error``.

    With *is_read_compacted* the result has only the messages that compaction kept (see :meth:`Admin.compact`), trimmed
    or not, and every message published since."""
    decoding = Decoding.checked(crypto_key_reader, crypto_failure_action)
    layout = layout_for_frames(spark, root)
    found, partitions = resolve_topic(layout, topic)
    check_opens(found.path)
    columns = [*DELIVERED, *KEY_FLAGS, *ENCODING_COLUMNS]
    if is_read_compacted:
        messages, has_encoded = _compacted(spark, layout, found, columns, partitions)
    else:
        version = TableLog(found.path).latest()
        messages, has_encoded = messages_at(spark, layout, found, version, columns, partitions)
    return decoding.shown(messages, has_encoded).drop("redelivery_count")


def _compacted(
    spark: SparkSession, layout: Layout, topic: Topic, columns: Sequence[str], partitions: Sequence[int]
) -> tuple[DataFrame, bool]:
    version = TableLog(topic.path).latest()
    view = CompactedView(topic.path)  # read after the table's version: the view has what was trimmed from it
    ledgers = ledgers_until(layout, topic, version)
    ends = {each: known.end_position for each, known in ledgers.items() if each in partitions}
    firsts = {each: ledgers[each].first_after(view.horizon(each)) for each in ends}
    later = [PositionRange(each, first, ends[each] - 1) for each, first in firsts.items()]
    messages, has_encoded = messages_at(spark, layout, topic, version, columns, ranges=later)
    if not view.messages(partitions):
        return messages, has_encoded
    first = F.lit(0)
    for partition, position in firsts.items():
        first = F.when(F.col("partition") == partition, position).otherwise(first)
    rows = spark.read.format("delta").option("versionAsOf", view.version).load(str(view.path))
    missing_columns = {"redelivery_count": F.lit(0), PAYLOAD_ERROR: F.lit(None).cast("string")}
    kept = rows.filter(F.col("partition").isin(*partitions)).withColumns(missing_columns).select(*messages.columns)
    has_encoded |= any(run.has_encoded for each in firsts for run in ledgers[each].runs)
    return messages.filter(F.col("position") >= first).unionByName(kept), has_encoded


def messages_at(
    spark: SparkSession,
    layout: Layout,
    topic: Topic,
    version: int,
    columns: Sequence[str],
    partitions: Sequence[int] | None = None,
    ranges: Sequence[PositionRange] | None = None,
) -> tuple[DataFrame, bool]:
    """*columns* of the messages of *topic* as of *version* of its table, and whether any payload may be compressed or
    encrypted.

    Limited to *partitions* or *ranges* of positions, if given; rows are as :func:`read_pieces` gives them. A chunked
    message with a chunk deleted or lost by now has no row. A message that cannot be put together, or a lost entry that
    may have been a chunk, has no payload, and :data:`PAYLOAD_ERROR` says why."""
    known, lost = ledgers_until(layout, topic, version), LostEntries(topic)
    wanted = _find_pieces(topic, known, lost, partitions, ranges)
    found: list[DataFrame] = []
    if wanted.pieces or not wanted.units:
        where = ~is_chunk() if wanted.has_chunks else None
        messages = read_pieces(spark, topic, wanted.pieces, columns, version=version, where=where)
        found.append(messages.withColumn(PAYLOAD_ERROR, F.lit(None).cast("string")))
    if wanted.units:
        spans_of = {partition: ledgers.spans_of for partition, ledgers in known.items()}.__getitem__
        parts = grouped_parts(spark, topic, wanted.units, spans_of)

        def many() -> DataFrame:
            return read_pieces(spark, topic, wanted.ends, columns, version=version, where=is_chunk())

        found.append(with_payloads(spark, topic, parts, spans_of, columns, many))
    if (rows := lost.rows(spark, columns)) is not None:
        found.append(rows)
    return reduce(DataFrame.unionByName, found), wanted.has_encoded


class _Wanted(NamedTuple):
    """The pieces of messages without chunks, those of last chunks, and the first positions of chunked messages by
    partition and last position."""

    pieces: list[Piece]
    ends: list[Piece]
    units: dict[int, dict[int, int]]
    has_chunks: bool
    has_encoded: bool


def _find_pieces(
    topic: Topic,
    known: Mapping[int, PartitionLedgers],
    lost: LostEntries,
    partitions: Sequence[int] | None,
    ranges: Sequence[PositionRange] | None,
) -> _Wanted:
    pieces: list[Piece] = []
    ends: list[Piece] = []
    units: dict[int, dict[int, int]] = {}
    has_chunks = has_encoded = False
    for partition, ledgers in known.items():
        if partitions is not None and partition not in partitions:
            continue
        end, groups = ledgers.end_position, ChunkGroups(topic.path, ledgers)
        for range_ in [PositionRange(partition, 0, end - 1)] if ranges is None else ranges:
            if range_.partition != partition or range_.first >= end:
                continue
            for run in ledgers.parts(range_.first, min(range_.last, end - 1)):
                has_encoded |= run.has_encoded
                has_chunks |= run.may_have_chunks
                there = lost.without(partition, run) if run.may_have_chunks else [run]
                pieces += pieces_of(range_, (part for part in there if not _is_all_chunks(groups, part)))
                if of_run := _units(groups, run):
                    units.setdefault(partition, {}).update(of_run)
                    ends += pieces_of(range_, [run])
    return _Wanted(pieces, ends, units, has_chunks, has_encoded)


def _units(groups: ChunkGroups, run: Run) -> dict[int, int]:
    """The first position of each complete chunked message that ends in *run*, by its last position."""
    firsts, lasts = groups.units(run.first_position, run.last_position) if run.may_have_chunks else ((), ())
    return {int(last): int(first) for first, last in zip(firsts, lasts)}


def _is_all_chunks(groups: ChunkGroups, run: Run) -> bool:
    if not run.may_have_chunks:
        return False
    of_none = sum(last - first + 1 for first, last in groups.parts(run.first_position, run.last_position))
    return of_none + len(_units(groups, run)) == run.entries
