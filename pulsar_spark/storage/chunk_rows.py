"""The chunks of a run: what their rows say of the message they are part of, without their payloads.

Of a chunk that was deleted the file that was published still says it, until VACUUM takes that. So a DELETE of some
chunks leaves the message what it was, one that is gone, and not one that might still be completed.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.entries import is_in_table, read_slice

COLUMNS = ("uuid", "producer_name", "chunk_id", "num_chunks_from_msg", "publish_time")

_FEW = 1 << 10


class Chunks(NamedTuple):
    """Chunks in order of position: whose group each is of, by index into ``keys``, which ascend."""

    positions: np.ndarray
    keys: np.ndarray
    groups: np.ndarray
    chunk_ids: np.ndarray
    num_chunks: np.ndarray
    times: np.ndarray


def read_chunks(table: Path, run: Run) -> Chunks:
    """The chunks of *run* that the table has."""
    return _chunks_in(_rows_of(table, run))


def read_published_chunks(table: Path, run: Run) -> tuple[Chunks, np.ndarray]:
    """The chunks of *run*, as the table has them or, of those that were deleted, as they were published; and the
    positions of these."""
    there = _rows_of(table, run)
    if is_in_table(table, run):
        return _chunks_in(there), np.zeros(0, np.int64)
    published = _rows_of(table, run, as_published=True)
    is_deleted = read_slice(table, [run], ("entry_id",))["entry_id"].is_null().to_numpy()
    deleted = published.filter(is_deleted[published["position"].to_numpy() - run.first_position])
    rows = pa.concat_tables([there, deleted]).sort_by("position") if deleted.num_rows else there
    return _chunks_in(rows), deleted["position"].to_numpy()


def _rows_of(table: Path, run: Run, *, as_published: bool = False) -> pa.Table:
    """The rows that are chunks. Of many entries those of which any is one are found out first."""
    if run.entries <= _FEW:
        rows = read_slice(table, [run], COLUMNS, as_published=as_published)
        return rows.filter(rows["uuid"].is_valid())
    uuids = read_slice(table, [run], COLUMNS[:1], as_published=as_published)["uuid"]
    places = np.flatnonzero(uuids.is_valid().to_numpy())
    wanted = (
        [run.part(run.first_position + int(places[0]), run.first_position + int(places[-1]))] if len(places) else []
    )
    rows = read_slice(table, wanted, COLUMNS, as_published=as_published)
    return rows.filter(rows["uuid"].is_valid())


def _chunks_in(rows: pa.Table) -> Chunks:
    keys, groups = _keys_of(rows["producer_name"], rows["uuid"])
    return Chunks(
        rows["position"].to_numpy(),
        keys,
        groups,
        rows["chunk_id"].fill_null(-1).to_numpy().astype(np.int64),
        rows["num_chunks_from_msg"].fill_null(-1).to_numpy().astype(np.int64),
        rows["publish_time"].cast(pa.int64()).fill_null(0).to_numpy(),
    )


def _keys_of(producers: pa.ChunkedArray, uuids: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """A hash for each group, ascending, and of each chunk the index of its own."""
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
