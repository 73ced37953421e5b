"""The chunks of a run: what their rows say of the message they are part of, without their payloads."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.entries import read_slice

COLUMNS = ("uuid", "producer_name", "chunk_id", "num_chunks_from_msg", "publish_time")


class Chunks(NamedTuple):
    """Chunks in order of position: whose group each is of, by index into ``keys``, which ascend."""

    positions: np.ndarray
    keys: np.ndarray
    groups: np.ndarray
    chunk_ids: np.ndarray
    num_chunks: np.ndarray
    times: np.ndarray


def read_chunks(table: Path, run: Run) -> Chunks:
    """The chunks of *run*."""
    uuids = read_slice(table, [run], COLUMNS[:1])["uuid"]
    places = np.flatnonzero(uuids.is_valid().to_numpy())
    nothing = np.zeros(0, np.int64)
    if not len(places):
        return Chunks(nothing, np.zeros(0, np.uint64), nothing, nothing, nothing, nothing)
    rows = read_slice(
        table, [run.part(run.first_position + int(places[0]), run.first_position + int(places[-1]))], COLUMNS
    )
    rows = rows.filter(rows["uuid"].is_valid())
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
