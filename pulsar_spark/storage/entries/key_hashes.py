"""Hashes of entries' sticky keys, which decide the owner on Key_Shared (semantics 2.21-2.23, 0.1).

An entry has its first message's hash (2.22), stored by its producer or computed here.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.protocol.acknowledgement.positions import as_array, clusters, expanded
from pulsar_spark.protocol.keys.murmur3 import hash_all
from pulsar_spark.protocol.keys.sticky_key import MAX_HASH, NO_KEY_HASH, bytes_of
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.file_statistics import file_statistics, footer_schema
from pulsar_spark.storage.entries.entries import is_in_table
from pulsar_spark.storage.entries.run_slices import read_slice
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.store.store import StrPath, store_of
from pulsar_spark.table_specs import HASH, KEY_COLUMNS, MESSAGES


def read_hashes(table: StrPath, runs: Iterable[Run]) -> np.ndarray:
    """The 31-bit hash of each entry of *runs*, in order, as int32; that of ``NONE_KEY`` without a key or message."""
    runs = list(runs)
    entries = np.array([run.entries for run in runs], np.int64)
    has_keys = np.repeat(np.array([run.has_keys for run in runs], bool), entries)
    hashes = np.full(len(has_keys), NO_KEY_HASH, np.int32)
    if has_keys.any():
        hashes[has_keys] = _hashes_of(table, [run for run in runs if run.has_keys])
    return hashes


def unhashed_keys(table: StrPath, runs: Iterable[Run]) -> list[str] | None:
    """The key columns, with values in any footer, from which hashes must be computed; None if all hashes are stored."""
    by_path = {run.path: run for run in runs}
    files = [
        _key_columns(f"{table}/{path}") if is_in_table(table, run) else KEY_COLUMNS for path, run in by_path.items()
    ]
    found = {name for names in files if names is not None for name in names}
    return None if all(names is None for names in files) else [name for name in KEY_COLUMNS if name in found]


@lru_cache(maxsize=4096)
def _key_columns(path: str) -> tuple[str, ...] | None:
    footer = pq.read_metadata(store_of(path).parquet(path))
    found, names = file_statistics(footer), footer_schema(footer).to_arrow_schema().names
    if found["nullCount"].get("sticky_key_hash") == 0:
        return None
    return tuple(name for name in KEY_COLUMNS if name in names and found["nullCount"].get(name) != found["numRecords"])


def hashes_of(
    index: LedgerIndex, table: StrPath, topic_id: str, partition: int, spans: Sequence[tuple[int, int]]
) -> np.ndarray:
    """The hash of each entry of the ordered, disjoint *spans* (first, last); near spans are read together."""
    firsts, lasts = as_array(spans)
    hashes = [np.empty(0, np.int32)]
    for start, end in clusters(firsts, lasts):
        first, last = int(firsts[start]), int(lasts[end - 1])
        there = read_hashes(table, index.runs(topic_id, partition, first, last))
        hashes.append(there[expanded(firsts[start:end], lasts[start:end]) - first])
    return np.concatenate(hashes)


def _hashes_of(table: StrPath, runs: Sequence[Run]) -> np.ndarray:
    stored = read_slice(table, runs, [HASH])[HASH]
    hashes = stored.fill_null(NO_KEY_HASH).to_numpy() & np.int32(MAX_HASH)
    if stored.null_count:
        is_unknown = stored.is_null().to_numpy()
        parts, places = [], []
        ends = np.cumsum([run.entries for run in runs])
        for run, begin in zip(runs, ends - [run.entries for run in runs]):
            unknown = np.flatnonzero(is_unknown[begin : begin + run.entries])
            if len(unknown):
                first, last = int(unknown[0]), int(unknown[-1])
                parts.append(run.part(run.first_position + first, run.first_position + last))
                places.append(np.arange(begin + first, begin + last + 1))
        here = np.concatenate(places)
        computed = _computed(read_slice(table, parts, KEY_COLUMNS))
        hashes[here] = np.where(is_unknown[here], computed, hashes[here])
    return hashes


def hashes_in(rows: pa.Table) -> np.ndarray:
    """The hash of each of *rows*, all single messages, stored or computed."""
    stored = rows[HASH] if HASH in rows.column_names else pa.nulls(rows.num_rows, pa.int32())
    hashes = stored.fill_null(NO_KEY_HASH).to_numpy(zero_copy_only=False) & np.int32(MAX_HASH)
    if stored.null_count:
        types = {name: MESSAGES.schema.field(name).type for name in KEY_COLUMNS}
        keys = {
            name: rows[name] if name in rows.column_names else pa.nulls(len(hashes), types[name])
            for name in KEY_COLUMNS
        }
        unknown = stored.is_null().to_numpy(zero_copy_only=False)
        hashes = np.where(unknown, _computed(pa.table(keys)), hashes)
    return hashes


def _computed(keys: pa.Table) -> np.ndarray:
    return np.concatenate([_of_batch(*batch.select(KEY_COLUMNS).columns) for batch in keys.to_batches()])


def _of_batch(
    partition_keys: pa.Array, ordering_keys: pa.Array, is_base64: pa.Array, is_ordering_key_base64: pa.Array
) -> np.ndarray:
    keys = pc.coalesce(ordering_keys.cast(pa.binary()), partition_keys.cast(pa.binary()))
    hashes = _of_each(keys)
    flags = pc.if_else(ordering_keys.is_valid(), is_ordering_key_base64, is_base64)
    is_coded = pc.and_(flags.fill_null(False), keys.is_valid())
    if is_coded.true_count:
        coded = keys.filter(is_coded).dictionary_encode()
        decoded = _of_each(pa.array(map(bytes_of, coded.dictionary.to_pylist()), pa.binary()))
        hashes[is_coded.to_numpy(zero_copy_only=False)] = decoded[coded.indices.to_numpy()]
    return hashes


def _of_each(keys: pa.BinaryArray) -> np.ndarray:
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return np.where(keys.is_null().to_numpy(zero_copy_only=False), NO_KEY_HASH, hash_all(data or b"", ends))
