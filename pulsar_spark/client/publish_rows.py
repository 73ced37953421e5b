"""Rows of one publish commit, column by column: entries of any number of partitions become one Arrow table.

Entry ids count 0, 1, 2... within each partition of the commit, in the order of sending. Where any message has a key,
each says the hash that Key_Shared goes by, so that no round has to read and hash the keys. A message is a tuple, see
:class:`Outgoing`, because a fast producer makes tens of thousands of them a second.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.client.send_outcomes import ChunkedSend
from pulsar_spark.protocol.sticky_key import sticky_key, sticky_key_hash
from pulsar_spark.table_specs import MESSAGES


class Outgoing(NamedTuple):
    """A message on its way, or a chunk of one. ``done`` is told (send_outcomes.answer), where somebody wants to
    know; times are ms since 1970; ``columns`` has the values of further columns."""

    payload: bytes | memoryview | None
    partition_key: str | None
    ordering_key: str | None
    properties: list[tuple[str, str]] | None
    event_ms: int | None
    deliver_at_ms: int | None
    publish_ms: int
    sequence_id: int
    deadline: float
    done: Callable | None
    columns: dict[str, object] | None = None

    def numbered(self, sequence_id: int) -> "Outgoing":
        """The same message with that sequence id; a sixth of the time of ``_replace``."""
        return tuple.__new__(Outgoing, (*self[:_SEQUENCE_ID], sequence_id, *self[_SEQUENCE_ID + 1 :]))


_SEQUENCE_ID = Outgoing._fields.index("sequence_id")


class Entry(NamedTuple):
    """One message, one batch of messages or one chunk for one partition; ``whole`` is what the chunks of a message
    share."""

    partition: int
    messages: list[Outgoing]
    whole: ChunkedSend | None = None

    @property
    def is_given_up(self) -> bool:
        """Whether it is a chunk of a message that failed."""
        return self.whole is not None and self.whole.error is not None


_EVERY_COLUMN = frozenset(MESSAGES.schema_at(1).names)
"""Of the others, a file has those that something is said in: to write a column takes time, also when it is empty."""


Place = tuple[int, int, int]
"""Where the commit puts a message: partition, entry id and batch index, -1 outside a batch. What its id lacks is the
commit's version."""


def publish_rows(
    entries: list[Entry], publish_id: str, producer_name: str, schema_version: int | None = None
) -> tuple[pa.Table, list[Place]]:
    """The rows of a publish commit with these entries, and for each row, in order, where its message lies."""
    next_entry_id: dict[int, Iterator[int]] = defaultdict(itertools.count)
    sizes = np.array([len(entry.messages) for entry in entries])
    of_entries = [(partition, next(next_entry_id[partition])) for partition, _, _ in entries]
    partitions, entry_ids = np.repeat(np.array(of_entries), sizes, axis=0).T
    batch_sizes, rows = np.repeat(sizes, sizes), int(sizes.sum())
    indexes = np.arange(rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    batch_indexes = np.where(batch_sizes == 1, -1, indexes)
    columns = dict(zip(Outgoing._fields, zip(*(message for entry in entries for message in entry.messages))))

    def column(name: str, values) -> pa.Array:
        return pa.array(values, MESSAGES.schema.field(name).type)

    def time(name: str) -> pa.Array:
        return _times(columns[name])

    given = {
        "publish_id": pa.repeat(pa.scalar(publish_id), rows),
        "entry_id": column("entry_id", entry_ids),
        "batch_index": pa.array(batch_indexes, MESSAGES.schema.field("batch_index").type, mask=batch_indexes < 0),
        "batch_size": column("batch_size", batch_sizes),
        "partition": column("partition", partitions),
        **{
            name: column(name, columns[name])
            for name in ("partition_key", "ordering_key", "payload", "properties", "sequence_id")
        },
        "event_time": time("event_ms"),
        "publish_time": time("publish_ms"),
        "deliver_at_time": time("deliver_at_ms"),
        "producer_name": pa.repeat(pa.scalar(producer_name), rows),
    }
    if schema_version is not None:
        given["schema_version"] = pa.repeat(
            pa.scalar(schema_version, MESSAGES.schema.field("schema_version").type), rows
        )
    if any(columns["partition_key"]) or any(columns["ordering_key"]):
        given["sticky_key_hash"] = column("sticky_key_hash", _sticky_key_hashes(entries))
    said = columns["columns"]
    for name in set().union(*filter(None, said)):
        given[name] = column(name, [further and further.get(name) for further in said])
    written = pa.schema([field for field in MESSAGES.schema if field.name in given or field.name in _EVERY_COLUMN])
    arrays = [given[field.name] if field.name in given else pa.nulls(rows, field.type) for field in written]
    places = zip(partitions.tolist(), entry_ids.tolist(), batch_indexes.tolist())
    return pa.Table.from_arrays(arrays, schema=written), list(places)


def _sticky_key_hashes(entries: list[Entry]) -> list[int]:
    """What Key_Shared goes by, for each message: the hash of the first message's key of its entry (2.22)."""
    hashes: list[int] = []
    known: dict[tuple[str | None, str | None], int] = {}
    for _, messages, _ in entries:
        keys = messages[0].partition_key, messages[0].ordering_key
        if (found := known.get(keys)) is None:
            partition_key, ordering_key = keys
            key = sticky_key(partition_key, ordering_key=ordering_key and ordering_key.encode("utf-8"))
            found = known[keys] = sticky_key_hash(key)
        hashes += [found] * len(messages)
    return hashes


def unwritable_text(message: Outgoing) -> tuple[str, str] | tuple[None, None]:
    """Which text of a message cannot be written as UTF-8, and that text: Python's strings may hold half of a surrogate
    pair."""
    texts = [("partition key", message.partition_key), ("ordering key", message.ordering_key)]
    texts += [(f"property {name!r}", part) for name, value in message.properties or () for part in (name, value)]
    for what, text in texts:
        try:
            (text or "").encode()
        except UnicodeEncodeError:
            return what, text
    return None, None


def _times(milliseconds: tuple[int | None, ...]) -> pa.Array:
    return pa.array(milliseconds, pa.timestamp("ms", tz="UTC")).cast(MESSAGES.schema.field("publish_time").type)
