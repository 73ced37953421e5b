"""Rows of one publish commit, column by column: entries of any number of partitions become one Arrow table.

Entry ids count 0, 1, 2... within each partition of the commit, in the order of sending. Where any message has a key,
each says the hash that Key_Shared goes by, so that no round has to read and hash the keys. A message is a tuple, see
:class:`Outgoing`, because a fast producer makes tens of thousands of them a second.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.client.send_outcomes import ChunkedSend
from pulsar_spark.protocol.sticky_key import sticky_key, sticky_key_hash
from pulsar_spark.table_specs import MESSAGES


class Outgoing(NamedTuple):
    """A message on its way, or a chunk of one. ``done`` is called with (error, message id), where somebody wants to
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


class Place(NamedTuple):
    """Where the commit puts a message: what its id lacks is the commit's version."""

    partition: int
    entry_id: int
    batch_index: int


def publish_rows(entries: list[Entry], publish_id: str, producer_name: str) -> tuple[pa.Table, list[Place]]:
    """The rows of a publish commit with these entries, and for each row, in order, where its message lies."""
    next_entry_id: dict[int, int] = defaultdict(int)
    places: list[Place] = []
    batch_sizes: list[int] = []
    for partition, messages, _ in entries:
        entry_id = next_entry_id[partition]
        next_entry_id[partition] += 1
        if len(messages) == 1:
            places.append(Place(partition, entry_id, -1))
        else:
            places += [Place(partition, entry_id, index) for index in range(len(messages))]
        batch_sizes += [len(messages)] * len(messages)
    columns = dict(zip(Outgoing._fields, zip(*(message for entry in entries for message in entry.messages))))
    partitions, entry_ids, batch_indexes = zip(*places)
    rows = len(places)

    def column(name: str, values) -> pa.Array:
        return pa.array(values, MESSAGES.schema.field(name).type)

    def time(name: str) -> pa.Array:
        return _times(columns[name])

    given = {
        "publish_id": pa.repeat(pa.scalar(publish_id), rows),
        "entry_id": column("entry_id", entry_ids),
        "batch_index": column("batch_index", [index if index >= 0 else None for index in batch_indexes]),
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
    if any(columns["partition_key"]) or any(columns["ordering_key"]):
        given["sticky_key_hash"] = column("sticky_key_hash", _sticky_key_hashes(entries))
    said = columns["columns"]
    for name in {name for further in said if further for name in further}:
        given[name] = column(name, [further and further.get(name) for further in said])
    written = pa.schema([field for field in MESSAGES.schema if field.name in given or field.name in _EVERY_COLUMN])
    arrays = [given[field.name] if field.name in given else pa.nulls(rows, field.type) for field in written]
    return pa.Table.from_arrays(arrays, schema=written), places


def _sticky_key_hashes(entries: list[Entry]) -> list[int]:
    """What Key_Shared goes by, for each message: the hash of the first message's key of its entry (2.22)."""
    hashes: list[int] = []
    for _, messages, _ in entries:
        first, ordering_key = messages[0], messages[0].ordering_key
        key = sticky_key(first.partition_key, ordering_key=ordering_key and ordering_key.encode("utf-8"))
        hashes += [sticky_key_hash(key)] * len(messages)
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
