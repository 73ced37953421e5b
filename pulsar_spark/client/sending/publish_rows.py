"""Rows of one publish commit, as one Arrow table.

Entry ids count from 0 within each partition. If any message has a key, rows have the sticky-key hash.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.client.sending.send_outcomes import ChunkedSend, Done
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.protocol.keys.sticky_key import sticky_key, sticky_key_hash
from pulsar_spark.table_specs import DELIVERED, MESSAGE_KEYS, MESSAGES


class Outgoing(NamedTuple):
    """A message to send, or a chunk of one, as a tuple for speed. ``done`` gets the outcome; times are ms since 1970;
    ``columns`` has further columns.
    """

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
    next_entry_id: dict[int, Iterator[int]] = defaultdict(itertools.count)
    sizes = np.array([len(entry.messages) for entry in entries])
    of_entries = [(partition, next(next_entry_id[partition])) for partition, _, _ in entries]
    partitions, entry_ids = np.repeat(np.array(of_entries), sizes, axis=0).T
    batch_sizes, rows = np.repeat(sizes, sizes), int(sizes.sum())
    indexes = np.arange(rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    batch_indexes = np.where(batch_sizes == 1, -1, indexes)
    messages = [message for entry in entries for message in entry.messages]

    def field_of(name: str) -> list:
        """One field of each message: field by field is fastest."""
        at = Outgoing._fields.index(name)
        return [message[at] for message in messages]

    def column(name: str, values) -> pa.Array:
        return pa.array(values, MESSAGES.schema.field(name).type)

    keys = {name: field_of(name) for name in MESSAGE_KEYS}
    given = {
        "publish_id": pa.repeat(pa.scalar(publish_id), rows),
        "entry_id": column("entry_id", entry_ids),
        "batch_index": pa.array(batch_indexes, MESSAGES.schema.field("batch_index").type, mask=batch_indexes < 0),
        "batch_size": column("batch_size", batch_sizes),
        "partition": column("partition", partitions),
        **{name: column(name, field_of(name)) for name in ("payload", "properties", "sequence_id")},
        **{name: column(name, values) for name, values in keys.items()},
        "event_time": _times(field_of("event_ms")),
        "publish_time": _times(field_of("publish_ms")),
        "deliver_at_time": _times(field_of("deliver_at_ms")),
        "producer_name": pa.repeat(pa.scalar(producer_name), rows),
    }
    if schema_version is not None:
        given["schema_version"] = pa.repeat(
            pa.scalar(schema_version, MESSAGES.schema.field("schema_version").type), rows
        )
    if any(map(any, keys.values())):
        given["sticky_key_hash"] = column("sticky_key_hash", _sticky_key_hashes(entries))
    further = field_of("columns")
    for name in set().union(*filter(None, further)):
        given[name] = column(name, [each and each.get(name) for each in further])
    written = pa.schema([field for field in MESSAGES.schema if field.name in given or field.name in DELIVERED])
    arrays = [given[field.name] if field.name in given else pa.nulls(rows, field.type) for field in written]
    places = CommitPlaces(entry_ids.tolist(), batch_indexes.tolist(), partitions.tolist())
    return pa.Table.from_arrays(arrays, schema=written), places


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
    """The name and value of a message's first text that is not valid UTF-8; None without one."""
    texts = [("partition key", message.partition_key), ("ordering key", message.ordering_key)]
    texts += [(f"property {name!r}", part) for name, value in message.properties or () for part in (name, value)]
    for name, text in texts:
        try:
            (text or "").encode()
        except UnicodeEncodeError:
            return name, text or ""
    return None


def _times(milliseconds: list[int | None]) -> pa.Array:
    return pa.array(milliseconds, pa.timestamp("ms", tz="UTC")).cast(MESSAGES.schema.field("publish_time").type)
