"""Read a slice in a task: its messages as Arrow tables, chunked messages joined, payloads decoded.

The rows come from ``EntryReader``, chunks are joined by ``ChunkedMessages`` and payloads decoded by ``plain_rows``, as
for readers and frames."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.client.model.enums import ConsumerCryptoFailureAction
from pulsar_spark.errors import MessagesLost, UnreadableMessage
from pulsar_spark.frames.reading.payload_batches import make_key_reader
from pulsar_spark.frames.reading.payloads import Decoding, plain_rows
from pulsar_spark.frames.source.message_slices import MessageSlice
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS, PAYLOAD_ERROR, PayloadDecoder
from pulsar_spark.protocol.acknowledgement.packing import unpacked_pairs
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups
from pulsar_spark.storage.chunks.chunk_runs import ChunkRuns
from pulsar_spark.storage.chunks.chunks import ChunkedMessages
from pulsar_spark.storage.entries.entries import CACHED_BYTES, EntryReader
from pulsar_spark.storage.entries.message_files import ENTRY_COLUMNS
from pulsar_spark.storage.entries.missing import Missing, lost_error
from pulsar_spark.storage.entries.stated_messages import may_be_stated
from pulsar_spark.storage.store.store import path_of
from pulsar_spark.transforms.chunks import MOST_BYTES

_BLOCK_ROWS = 1 << 14
_PIECE_BYTES = 32 << 20
"""About the most bytes of joined or decoded payloads in a table, unless one has more."""
_OF_CHUNKS = ("uuid", "num_chunks_from_msg")
_PAYLOAD = "payload"


class _Replaced(NamedTuple):
    """What stands for the payload of the row *at*; ``is_gone``: the row is left out, ``is_plain``: it was decoded."""

    at: int
    payload: bytes | None
    error: str | None = None
    is_gone: bool = False
    is_plain: bool = False


def read_slice(slice_: MessageSlice, columns: Sequence[str], decoding: Decoding | None) -> Iterator[pa.Table]:
    """The messages of *slice_* in the order of positions: *columns* of the messages table, ``ledger_id``, ``position``
    and :data:`PAYLOAD_ERROR`.

    Payloads are decoded, if they are among the columns, as *decoding* says. A payload that cannot be read is null with
    an error. A message that was deleted, or of which a chunk was, has no row. :class:`MessagesLost` if a file is
    lost."""
    yield from _Reading(slice_, columns, decoding).tables()


class _Reading:
    def __init__(self, slice_: MessageSlice, columns: Sequence[str], decoding: Decoding | None):
        self._slice, self._columns = slice_, columns
        self._decoding = decoding if _PAYLOAD in columns else None
        self._table, self._entries = path_of(slice_.table), EntryReader(CACHED_BYTES, _BLOCK_ROWS)
        self._has_encoded = self._decoding is not None and any(run.has_encoded for run in slice_.runs)
        added = (*_OF_CHUNKS, *(ENCODING_COLUMNS if self._has_encoded else ()))
        self._read = [name for name in ENTRY_COLUMNS if name in (*columns, *added)]
        self._publish_ids = {run.ledger_id: run.publish_id for run in slice_.runs}
        self._named = {run.first_position: named for run, named in zip(slice_.runs, slice_.named)}

    def tables(self) -> Iterator[pa.Table]:
        for run, rows in self._blocks():
            pieces = iter([rows.append_column(PAYLOAD_ERROR, pa.nulls(rows.num_rows, pa.string()))])
            if run is not None and run.may_have_chunks:
                pieces = (piece for each in pieces for piece in _with(each, self._joined(each)))
            if self._has_encoded:
                pieces = (piece for each in pieces for piece in _with(each, self._plain(each)))
            yield from (self._whole(run, piece) for piece in pieces if piece.num_rows)

    def _blocks(self) -> Iterator[tuple[Run | None, pa.Table]]:
        parts = zip(self._slice.runs, self._slice.as_published)
        for is_small, members in groupby(parts, lambda part: may_be_stated(part[0]) and not part[0].may_have_chunks):
            for run, rows in self._read_small(members) if is_small else self._read_each(members):
                if not isinstance(rows, Missing):
                    yield run, rows
                elif rows.is_lost and run is not None and not self._slice.skips_lost:
                    raise lost_error(self._table, run, rows)

    def _read_small(self, parts: Iterable[tuple[Run, bool]]) -> Iterator[tuple[Run | None, pa.Table | Missing]]:
        spans = ((run, self._spans(run) or [(run.first_position, run.last_position)]) for run, _ in parts)
        return self._entries.read_all(self._table, spans)

    def _read_each(self, parts: Iterable[tuple[Run, bool]]) -> Iterator[tuple[Run, pa.Table | Missing]]:
        for run, as_published in parts:
            for rows in self._entries.read(self._table, run, self._spans(run), self._read, as_published=as_published):
                yield run, rows

    def _spans(self, run: Run) -> list[tuple[int, int]] | None:
        """The positions of *run* without chunks that complete no message; None: all."""
        named = self._named.get(run.first_position)
        if named is not None:
            return unpacked_pairs(named)
        if not run.may_have_chunks:
            return None
        first, last = run.first_position, run.last_position
        return list(Positions(self._groups.parts(first, last)).gaps(first, last))

    def _whole(self, run: Run | None, rows: pa.Table) -> pa.Table:
        """*rows* with the columns that are the same in a run."""
        if run is not None:
            rows = rows.append_column("ledger_id", pa.repeat(pa.scalar(run.ledger_id), rows.num_rows))
        added = {
            "publish_id": lambda: self._publish_ids_of(rows["ledger_id"]),
            "partition": lambda: pa.repeat(pa.scalar(self._slice.partition, pa.int32()), rows.num_rows),
        }
        for name, values in added.items():
            if name in self._columns:
                rows = rows.append_column(name, values())
        return rows.select([*self._columns, "ledger_id", "position", PAYLOAD_ERROR])

    def _publish_ids_of(self, ledger_ids: pa.ChunkedArray) -> pa.Array:
        known = ledger_ids.combine_chunks().dictionary_encode()
        ids = [self._publish_ids[ledger_id] for ledger_id in known.dictionary.to_pylist()]
        return pa.array(ids, pa.string()).take(known.indices)

    @cached_property
    def _chunks(self) -> ChunkRuns:
        return ChunkRuns(self._slice.chunk_runs)

    @cached_property
    def _groups(self) -> ChunkGroups:
        return ChunkGroups(self._table, self._chunks)

    @cached_property
    def _parts(self) -> dict[int, np.ndarray]:
        """The positions of the chunks of each message that ends in the slice, by its last position."""
        runs, units = self._slice.runs, {last: first for first, last in self._slice.units or ()}
        if self._slice.units is None:
            firsts, lasts = self._groups.units(runs[0].first_position, runs[-1].last_position)
            units = dict(zip(lasts.tolist(), firsts.tolist()))
        return ChunkedMessages(self._table, self._entries, self._chunks.spans_of).parts(units)

    def _joined(self, rows: pa.Table) -> Iterator[_Replaced]:
        is_chunk = pc.and_(pc.is_valid(rows["uuid"]), pc.is_null(rows["batch_index"]))
        for at in np.flatnonzero(is_chunk.to_numpy()):
            yield self._message(int(at), rows["position"][at].as_py())

    def _message(self, at: int, last: int) -> _Replaced:
        parts = self._parts.get(last)
        if parts is None or not len(parts):
            return _Replaced(at, None, is_gone=True)
        chunked = ChunkedMessages(self._table, self._entries, self._chunks.spans_of)
        try:
            if _PAYLOAD not in self._columns:
                return _Replaced(at, None, is_gone=not chunked.are_there(parts))
            payload = chunked.joined(parts, MOST_BYTES)
        except (MessagesLost, UnreadableMessage) as failed:
            return _Replaced(at, None, f"{type(failed).__name__}: {failed}")
        return _Replaced(at, None if payload is None else bytes(payload), is_gone=payload is None)

    @cached_property
    def _decoder(self) -> PayloadDecoder:
        assert self._decoding is not None
        return PayloadDecoder(make_key_reader(self._decoding.key_reader))

    def _plain(self, rows: pa.Table) -> Iterator[_Replaced]:
        assert self._decoding is not None
        is_encoded = pc.and_(
            pc.or_(pc.is_valid(rows["compression"]), pc.is_valid(rows["encryption_keys"])), pc.is_valid(rows[_PAYLOAD])
        )
        places = np.flatnonzero(is_encoded.to_numpy())
        encoded = rows.take(pa.array(places)).combine_chunks()
        columns = [encoded[name].combine_chunks() for name in (_PAYLOAD, *ENCODING_COLUMNS)]
        for at, stored, (payload, error) in zip(places, columns[0], plain_rows(self._decoder, columns)):
            is_of_keys = error is not None and error.startswith("CryptoError")
            if is_of_keys and self._decoding.action is ConsumerCryptoFailureAction.CONSUME:
                continue
            is_gone = is_of_keys and self._decoding.action is ConsumerCryptoFailureAction.DISCARD
            if payload is None and error is None:  # neither compressed nor encrypted after all
                payload = stored.as_py()
            yield _Replaced(int(at), payload, error, is_gone, is_plain=error is None)


def _with(rows: pa.Table, replaced: Iterable[_Replaced]) -> Iterator[pa.Table]:
    """*rows* with the payloads *replaced*, in pieces of limited size."""
    some: list[_Replaced] = []
    begin = size = 0
    for each in replaced:
        if some and size + len(each.payload or b"") > _PIECE_BYTES:
            yield _piece(rows, begin, each.at, some)
            begin, some, size = each.at, [], 0
        some.append(each)
        size += len(each.payload or b"")
    yield _piece(rows, begin, rows.num_rows, some)


def _piece(rows: pa.Table, begin: int, end: int, replaced: Sequence[_Replaced]) -> pa.Table:
    rows = rows.slice(begin, end - begin)
    if not replaced:
        return rows
    at = np.array([each.at - begin for each in replaced])
    new: dict[str, pa.Array] = {PAYLOAD_ERROR: pa.array([each.error for each in replaced], pa.string())}
    if _PAYLOAD in rows.column_names:
        new[_PAYLOAD] = pa.array([each.payload for each in replaced], pa.binary())
    plain = np.array([each.at - begin for each in replaced if each.is_plain], np.int64)
    for name in ENCODING_COLUMNS if len(plain) else ():
        kept = np.zeros(rows.num_rows, bool)
        kept[plain] = True
        rows = _set(rows, name, rows[name].take(pa.array(np.arange(rows.num_rows), mask=kept)))
    for name, values in new.items():
        there = np.arange(rows.num_rows)
        there[at] = rows.num_rows + np.arange(len(at))
        rows = _set(rows, name, pa.chunked_array([*rows[name].chunks, values]).take(pa.array(there)))
    gone = [each.at - begin for each in replaced if each.is_gone]
    return rows.take(pa.array(np.delete(np.arange(rows.num_rows), gone))) if gone else rows


def _set(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)
