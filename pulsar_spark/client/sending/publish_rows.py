"""Rows of one publish commit, as one Arrow table.

If any message has a key, rows have the sticky-key hash.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.client.sending.send_outcomes import ChunkedSend, Done
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.protocol.keys.sticky_key import sticky_key, sticky_key_hash
from pulsar_spark.table_specs import MESSAGE_KEYS, MESSAGES, TIME

_TYPES = dict(zip(MESSAGES.schema.names, MESSAGES.schema.types))
_TIMES = {"event_time": "event_ms", "publish_time": "publish_ms", "deliver_at_time": "deliver_at_ms"}
_FEW_ROWS = 64
_MILLISECONDS = pa.timestamp("ms", tz="UTC")


class Outgoing(NamedTuple):
    """A message to send, or a chunk of one, as a tuple for speed. Times are ms since 1970; ``columns`` has further
    columns."""

    payload: bytes | memoryview | None
    partition_key: str | None
    ordering_key: str | None
    properties: list[tuple[str, str]] | None
    event_ms: int | None
    deliver_at_ms: int | None
    publish_ms: int
    sequence_id: int
    deadline: float
    done: Done | None
    columns: dict[str, object] | None = None

    def numbered(self, sequence_id: int) -> "Outgoing":
        """A copy with this sequence id, faster than ``_replace``."""
        return tuple.__new__(Outgoing, (*self[:_SEQUENCE_ID], sequence_id, *self[_SEQUENCE_ID + 1 :]))


_SEQUENCE_ID = Outgoing._fields.index("sequence_id")


class Entry(NamedTuple):
    """One message, one batch or one chunk for one partition; chunks of a message share ``whole``."""

    partition: int
    messages: list[Outgoing]
    whole: ChunkedSend | None = None

    @property
    def error(self) -> PulsarSparkError | None:
        """The error of the message of which it is a chunk."""
        return None if self.whole is None else self.whole.error


class CommitPlaces(NamedTuple):
    """The places of a commit's messages, in order; batch indexes are -1 outside a batch."""

    entry_ids: list[int]
    batch_indexes: list[int]
    partitions: list[int]

    def of_commit(self, version: int) -> Iterator[tuple[int, int, int, int]]:
        """The parts of the messages' ids, in order."""
        return zip(itertools.repeat(version), *self)


def publish_rows(
    entries: list[Entry], publish_id: str, producer_name: str, schema_version: int | None = None
) -> tuple[pa.Table, CommitPlaces]:
    """The rows of a publish commit, and the place of each row's message."""
    places, of_places = _places(entries)
    messages = [message for entry in entries for message in entry.messages]
    rows = len(messages)

    def field_of(name: str) -> list:
        """One field of each message: field by field is fastest."""
        at = Outgoing._fields.index(name)
        return [message[at] for message in messages]

    columns: dict[str, list | pa.Array] = {
        "publish_id": _repeated("publish_id", publish_id, rows),
        **of_places,
        "producer_name": _repeated("producer_name", producer_name, rows),
        **{name: field_of(name) for name in ("payload", "properties", "sequence_id", *MESSAGE_KEYS)},
        **{name: field_of(field) for name, field in _TIMES.items()},
    }
    if schema_version is not None:
        columns["schema_version"] = _repeated("schema_version", schema_version, rows)
    if any(any(columns[name]) for name in MESSAGE_KEYS):
        columns["sticky_key_hash"] = _sticky_key_hashes(entries)
    further = field_of("columns")
    for name in set().union(*filter(None, further)):
        columns[name] = [each and each.get(name) for each in further]
    written = [name for name in _TYPES if name in MESSAGE_KEYS or name in columns and not _is_empty(columns[name])]
    return _table({name: columns[name] for name in written}, rows), places


def _is_empty(column: list | pa.Array) -> bool:
    return isinstance(column, list) and column.count(None) == len(column)


def _table(columns: dict[str, list | pa.Array], rows: int) -> pa.Table:
    """*columns* as a table: few rows by one call of Arrow, since one for each column takes three times as long."""
    schema, struct = _schema(tuple(columns))
    if rows > _FEW_ROWS or not all(isinstance(column, list) for column in columns.values()):
        return pa.Table.from_arrays([_array(name, column) for name, column in columns.items()], schema=schema)
    micros = [_micros(column) if name in _TIMES else column for name, column in columns.items()]
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(list(zip(*micros)), struct))])


def _micros(milliseconds: list | pa.Array) -> list:
    return [None if each is None else 1000 * each for each in milliseconds]


def _array(name: str, column: list | pa.Array) -> pa.Array:
    if name in _TIMES:
        return pa.array(column, _MILLISECONDS).cast(TIME)
    return column if isinstance(column, pa.Array) else pa.array(column, _TYPES[name])


def _repeated(name: str, value: str | int, rows: int) -> list | pa.Array:
    return [value] * rows if rows <= _FEW_ROWS else pa.repeat(pa.scalar(value, _TYPES[name]), rows)


@lru_cache(maxsize=64)
def _schema(names: tuple[str, ...]) -> tuple[pa.Schema, pa.StructType]:
    fields = [pa.field(name, _TYPES[name]) for name in names]
    return pa.schema(fields), pa.struct(fields)


def _places(entries: list[Entry]) -> tuple[CommitPlaces, dict[str, list | pa.Array]]:
    """Where the messages lie, also as columns."""
    next_entry_id: dict[int, Iterator[int]] = defaultdict(itertools.count)
    of_entries = [(entry.partition, next(next_entry_id[entry.partition])) for entry in entries]
    sizes = [len(entry.messages) for entry in entries]
    rows = sum(sizes)
    if rows == len(entries):
        entry_ids, partitions = [entry_id for _, entry_id in of_entries], [each for each, _ in of_entries]
        places = CommitPlaces(entry_ids, [-1] * rows, partitions)
        return places, {"entry_id": entry_ids, "batch_size": sizes, "partition": partitions}
    partitions, entry_ids = np.repeat(np.array(of_entries), sizes, axis=0).T
    batch_sizes, ends = np.repeat(sizes, sizes), np.cumsum(sizes)
    batch_indexes = np.where(batch_sizes == 1, -1, np.arange(rows) - np.repeat(ends - sizes, sizes))
    columns = {"entry_id": entry_ids, "batch_size": batch_sizes, "partition": partitions}
    return CommitPlaces(entry_ids.tolist(), batch_indexes.tolist(), partitions.tolist()), {
        **{name: pa.array(column, _TYPES[name]) for name, column in columns.items()},
        "batch_index": pa.array(batch_indexes, _TYPES["batch_index"], mask=batch_indexes < 0),
    }


def _sticky_key_hashes(entries: list[Entry]) -> list[int]:
    """The sticky-key hash of each message: that of its entry's first message (2.22)."""
    hashes: list[int] = []
    known: dict[tuple[str | None, str | None], int] = {}
    for _, messages, _ in entries:
        keys = messages[0].partition_key, messages[0].ordering_key
        if (found := known.get(keys)) is None:
            partition_key, ordering_key = keys
            ordering = None if ordering_key is None else ordering_key.encode("utf-8")
            found = known[keys] = sticky_key_hash(sticky_key(partition_key, ordering_key=ordering))
        hashes += [found] * len(messages)
    return hashes


def unwritable_text(message: Outgoing) -> tuple[str, str] | None:
    """The name and value of a message's first text that is not valid UTF-8."""
    texts = [("partition key", message.partition_key), ("ordering key", message.ordering_key)]
    texts += [(f"property {name!r}", part) for name, value in message.properties or () for part in (name, value)]
    for name, text in texts:
        try:
            (text or "").encode()
        except UnicodeEncodeError:
            return name, text or ""
    return None
