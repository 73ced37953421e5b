"""Read the rows of chunks, without payloads; deleted chunks from their published file, until VACUUM removes it."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import MessagesLost
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array, expanded
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.entries import EntryReader, are_as_published
from pulsar_spark.storage.entries.missing import Missing, lost_error
from pulsar_spark.storage.entries.run_slices import are_missing, read_slice
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.table_specs import MESSAGES

PAYLOAD_BYTES = "payload_bytes"
"""Column with the size of ``payload``, 0 for null."""

COLUMNS = ("uuid", "producer_name", "chunk_id", "num_chunks_from_msg", "publish_time")

SpansOf = Callable[[Sequence[tuple[int, int]]], Iterable[tuple[Run, list[tuple[int, int]]]]]
"""Returns the runs that hold given positions, as PartitionLedgers.spans_of does."""

_FEW = 1 << 10
_AT_ONCE = 1 << 17


class Chunks(NamedTuple):
    """Chunks in order of position; ``groups`` holds indexes into ``keys``, which ascend."""

    positions: np.ndarray
    keys: np.ndarray
    groups: np.ndarray
    chunk_ids: np.ndarray
    num_chunks: np.ndarray
    times: np.ndarray


def read_chunks(table: AnyPath, run: Run) -> Chunks:
    return _chunks_in(_rows_of(table, [run]))


def read_published_chunks(table: AnyPath, runs: Sequence[Run]) -> tuple[Chunks, np.ndarray]:
    """The chunks of the ascending *runs*, deleted ones as published, and the positions of the deleted."""
    there = _rows_of(table, runs)
    changed = [run for run, is_so in zip(runs, are_as_published(table, runs)) if not is_so]
    if not changed:
        return _chunks_in(there), np.zeros(0, np.int64)
    published = _rows_of(table, changed, as_published=True)
    places = expanded(*as_array((run.first_position, run.last_position) for run in changed))
    is_deleted = np.isin(published["position"].to_numpy(), places[are_missing(table, changed)])
    deleted = published.filter(is_deleted)
    rows = pa.concat_tables([there, deleted]).sort_by("position") if deleted.num_rows else there
    return _chunks_in(rows), deleted["position"].to_numpy()


class Room:
    """A budget of bytes for payloads."""

    def __init__(self, most_bytes: int):
        self.left = most_bytes

    @property
    def is_enough(self) -> bool:
        return self.left >= 0

    def kept(self, payloads: pa.ChunkedArray, sizes: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        """*payloads* of these *sizes*, or nulls once the budget is exceeded."""
        if self.is_enough:
            self.left -= pc.sum(sizes).as_py() or 0
        return payloads if self.is_enough else pa.nulls(len(payloads), payloads.type)


def rows_of_chunks(
    table: AnyPath, run: Run, spans: Iterable[tuple[int, int]], columns: Sequence[str], room: Room | None = None
) -> pa.Table:
    """``position`` and *columns* of the chunks at *spans* of *run*, in order, without deleted and lost ones.

    *columns* may have :data:`PAYLOAD_BYTES`; *room* limits the payloads.
    """
    read = ("uuid", *("payload" if name == PAYLOAD_BYTES else name for name in columns))
    fields = [pa.field(name, pa.int64()) if name == PAYLOAD_BYTES else MESSAGES.schema.field(name) for name in columns]
    schema = pa.schema([pa.field("position", pa.int64()), *fields])
    found = [schema.empty_table()]
    for rows in EntryReader(block_rows=_AT_ONCE).read(table, run, spans, read):
        if isinstance(rows, Missing):
            continue
        is_chunk = pc.and_(rows["uuid"].is_valid(), rows["batch_index"].is_null())
        if PAYLOAD_BYTES in columns:
            rows = rows.append_column(
                PAYLOAD_BYTES, pc.fill_null(pc.binary_length(rows["payload"]), 0).cast(pa.int64())
            )
        if room is not None:
            sizes = rows[PAYLOAD_BYTES].filter(is_chunk)
            at = rows.schema.get_field_index("payload")
            rows = rows.set_column(at, schema.field("payload"), room.kept(rows["payload"], sizes))
        found.append(rows.select(schema.names).filter(is_chunk))
    return pa.concat_tables(found)


def lost_messages(
    table: AnyPath, spans_of: SpansOf, units: Mapping[int, int], columns: Sequence[str]
) -> dict[int, MessagesLost]:
    """Of *units* (first positions by last), the messages with lost chunks, and errors that name the lost files."""
    found: dict[int, MessagesLost] = {}
    for run, spans in spans_of(list(Positions((first, last) for last, first in units.items()))):
        if run.may_have_chunks:
            missing = (rows for rows in EntryReader().read(table, run, spans, columns) if isinstance(rows, Missing))
            for each in missing:
                found = _lost_in(table, run, each, units) | found if each.is_lost else found
    return found


def _lost_in(table: AnyPath, run: Run, missing: Missing, units: Mapping[int, int]) -> dict[int, MessagesLost]:
    lost = [(first + run.to_position, last + run.to_position) for first, last in missing.entries]
    found = {}
    for last, first in units.items():
        parts = [(max(first, begin), min(last, end)) for begin, end in lost if begin <= last and end >= first]
        if parts:
            entries = [(begin - run.to_position, end - run.to_position) for begin, end in parts]
            found[last] = lost_error(table, run, missing._replace(whole=entries, parts={}))
    return found


def _rows_of(table: AnyPath, runs: Sequence[Run], *, as_published: bool = False) -> pa.Table:
    """The rows that are chunks, in order; of large runs only the stretch with chunks is read."""
    wanted = []
    for run in runs:
        if run.entries <= _FEW:
            wanted.append(run)
            continue
        uuids = read_slice(table, [run], COLUMNS[:1], as_published=as_published)["uuid"]
        places = np.flatnonzero(uuids.is_valid().to_numpy())
        if len(places):
            wanted.append(run.part(run.first_position + int(places[0]), run.first_position + int(places[-1])))
    rows = read_slice(table, wanted, COLUMNS, as_published=as_published)
    return rows.filter(rows["uuid"].is_valid())


def _chunks_in(rows: pa.Table) -> Chunks:
    keys, groups = _keys_of(rows["producer_name"], rows["uuid"])
    chunk_ids, num_chunks = (
        rows[name].fill_null(-1).to_numpy().astype(np.int64) for name in ("chunk_id", "num_chunks_from_msg")
    )
    times = rows["publish_time"].cast(pa.int64()).fill_null(0).to_numpy()
    return Chunks(rows["position"].to_numpy(), keys, groups, chunk_ids, num_chunks, times)


def _keys_of(producers: pa.ChunkedArray, uuids: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    coded = [column.combine_chunks().dictionary_encode() for column in (producers, uuids)]
    names, ids = (each.dictionary.to_pylist() for each in coded)
    of_name, of_id = (each.indices.fill_null(-1).to_numpy().astype(np.int64) for each in coded)
    pairs, groups = np.unique((of_name + 1) * len(ids) + of_id, return_inverse=True)
    names = [None, *names]
    hashes = np.array([_key(names[pair // len(ids)], ids[pair % len(ids)]) for pair in pairs.tolist()], np.uint64)
    keys, of_pair = np.unique(hashes, return_inverse=True)
    return keys, of_pair[groups]


def _key(producer: str | None, uuid: str) -> int:
    named = f"{len(producer)}:{producer}{uuid}" if producer is not None else uuid
    return int.from_bytes(hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).digest())
