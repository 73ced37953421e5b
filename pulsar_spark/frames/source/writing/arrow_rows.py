"""Make rows of the messages table from a task's Arrow batches, by the rules of ``publish``: columns, keys, partitions.

Rules and names are those of ``frames.publishing``, where Spark's expressions do the same with frames."""

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from pulsar_spark.errors import InvalidMessage, MessageTooBig, NotAllowedError
from pulsar_spark.frames.publishing.message_columns import DELIVER_TIMES, target_of
from pulsar_spark.frames.reading.payload_encoding import Encoding
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS
from pulsar_spark.protocol.acknowledgement.positions import distinct
from pulsar_spark.protocol.delays.delays import MAX_MS
from pulsar_spark.protocol.delays.instants import from_micros, to_millis
from pulsar_spark.protocol.topics.routing import HashingScheme, key_hash
from pulsar_spark.table_specs import MESSAGE_KEYS, MESSAGES, TIME

_TASK_BITS = 33
"""An entry id is the task's number and, in so many bits, a number dense within task and partition."""


class RowSettings(NamedTuple):
    """How a publish makes its rows; *columns* are the types of the frame's columns. A limit of 0 is none."""

    columns: Mapping[str, T.DataType]
    properties_from: Sequence[str]
    partitions: Sequence[int]
    is_partitioned: bool
    scheme: HashingScheme
    encoding: Encoding
    max_message_size: int
    max_delay_ms: int

    @property
    def given(self) -> set[str]:
        """The columns of the messages table that the frame gives."""
        own = self.columns.keys() - set(self.properties_from)
        return {"deliver_at_time" if name in DELIVER_TIMES else target_of(name) for name in own}


class MessageRows:
    """Makes the rows of one task, which has the number *task*; *now* is the publish time."""

    def __init__(self, settings: RowSettings, task: int, now: datetime):
        self._settings, self._task, self._now = settings, task, now
        self._rows = 0
        self._next: Counter[int] = Counter()
        """The number of the next entry of each partition."""

    def batches(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of batches with the frame's columns, without those that are the same in all rows."""
        return (self._batch(batch) for batch in given if batch.num_rows)

    def _batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        for name, values in zip(batch.schema.names, batch.columns):
            if name in self._settings.properties_from:
                continue
            if target_of(name) in MESSAGE_KEYS:
                columns |= _key(target_of(name), values)
            elif name in DELIVER_TIMES:
                columns["deliver_at_time"] = self._deliver_at_time(name, values)
            elif name != "partition":
                columns[target_of(name)] = values.cast(MESSAGES.schema.field(target_of(name)).type)
        if self._settings.properties_from or "properties" in columns:
            columns["properties"] = self._properties(batch, columns.get("properties"))
        columns |= self._stored(columns["payload"])
        partitions = self._routed(batch, columns.get("partition_key"))
        columns["entry_id"] = pa.array(self._entry_ids(partitions))
        if self._settings.is_partitioned:
            columns["partition"] = pa.array(partitions, pa.int32())
        self._rows += batch.num_rows
        names = [name for name in MESSAGES.schema.names if name in columns]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)

    def _stored(self, payloads: pa.Array) -> dict[str, pa.Array]:
        """The payloads as they are stored; :class:`MessageTooBig` if one is too large."""
        stored = {"payload": payloads}
        if not self._settings.encoding.is_plain:
            pieces = pa.concat_arrays(self._settings.encoding.stored([payloads]))
            names = ("payload", *ENCODING_COLUMNS)
            stored = dict(zip(names, pieces.flatten()))
        largest = pc.max(pc.binary_length(stored["payload"])).as_py() or 0
        if 0 < self._settings.max_message_size < largest:
            raise MessageTooBig(
                f"a payload has {largest} bytes, above the maximum of {self._settings.max_message_size}: publish less "
                "per message, give a larger maxMessageSize, or use publish with chunking=True"
            )
        return stored

    def _deliver_at_time(self, name: str, values: pa.Array) -> pa.Array:
        """The deliver time from the column *name*: an instant, milliseconds since 1970, or an interval from now."""
        if not pa.types.is_timestamp(values.type):
            is_interval = pa.types.is_duration(values.type)
            unit, now_ms = (1000, to_millis(self._now)) if is_interval else (1, 0)
            numbers = values.cast(pa.int64()).fill_null(0).to_numpy()
            millis = [int(number) // unit + now_ms for number in (numbers.min(initial=0), numbers.max(initial=0))]
            if not -MAX_MS <= min(millis) <= max(millis) <= MAX_MS:
                raise InvalidMessage(
                    f"{name} exceeds 64 bits: give an instant at most {MAX_MS} milliseconds before or after 1970"
                )
            micros = 1000 * (numbers // unit + now_ms)
            values = pa.array(micros, pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))
        times = values.cast(TIME)
        latest, most = pc.max(times).as_py(), self._settings.max_delay_ms
        if most and latest is not None and latest > from_micros(1000 * (to_millis(self._now) + most)):
            raise NotAllowedError(
                f"a message with the deliver time '{latest}' waits longer than the topic's maximum of {most} ms: "
                "deliver it earlier, or raise the maximum (set-delayed-delivery --max-delay)"
            )
        return times

    def _properties(self, batch: pa.RecordBatch, own: pa.Array | None) -> pa.Array:
        """The properties of each row: its own, and the columns that become some, nulls left out."""
        names = self._settings.properties_from
        rows = (
            [dict(each or ()) for each in own.to_pylist()] if own is not None else [{} for _ in range(batch.num_rows)]
        )
        if any(value is None for row in rows for value in row.values()):
            raise InvalidMessage(
                "column 'properties' has a null value: leave such properties out with map_filter, or name columns in "
                "propertiesFrom, which leaves nulls out"
            )
        for name in names:
            for row, value in zip(rows, batch.column(name).to_pylist()):
                row.pop(name, None)
                if value is not None:
                    row[name] = value
        nulls = None if names or own is None else own.is_null()
        values = [list(row.items()) for row in rows]
        made = pa.array(values, MESSAGES.schema.field("properties").type)
        return made if nulls is None else pc.if_else(nulls, pa.scalar(None, made.type), made)

    def _routed(self, batch: pa.RecordBatch, keys: pa.Array | None) -> np.ndarray:
        """The partition of each row: the given one, that of its key, or round robin."""
        partitions = np.array(self._settings.partitions)
        index = (np.arange(self._rows, self._rows + batch.num_rows) + self._task) % len(partitions)
        if keys is not None and len(partitions) > 1 and keys.null_count < len(keys):
            known = keys.dictionary_encode()
            hashes = np.array([key_hash(key, self._settings.scheme) for key in known.dictionary.to_pylist()], np.int64)
            has_key = known.indices.is_valid().to_numpy(zero_copy_only=False)
            index[has_key] = hashes[known.indices.drop_null().to_numpy()] % len(partitions)
        routed = partitions[index]
        if "partition" in batch.schema.names:
            given = batch.column("partition").cast(pa.int64())
            is_given = given.is_valid().to_numpy(zero_copy_only=False)
            routed[is_given] = given.drop_null().to_numpy()
            unknown = routed[~np.isin(routed, partitions)]
            if len(unknown):
                raise InvalidMessage(
                    f"partition {unknown[0]} does not exist: this publish writes to {partitions[0]} to "
                    f"{partitions[-1]}; correct the column or leave it out"
                )
        return routed

    def _entry_ids(self, partitions: np.ndarray) -> np.ndarray:
        found = np.empty(len(partitions), np.int64)
        for partition in distinct(partitions).tolist():
            at = np.flatnonzero(partitions == partition)
            found[at] = (self._task << _TASK_BITS) + self._next[partition] + np.arange(len(at))
            self._next[partition] += len(at)
        return found


def _key(name: str, values: pa.Array) -> dict[str, pa.Array]:
    """The columns of a key: bytes become base64 with a flag; :class:`InvalidMessage` for text that is not UTF-8."""
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        known = values.dictionary_encode()
        texts = pa.array([base64.b64encode(key).decode() for key in known.dictionary.to_pylist()], pa.string())
        flags = pc.if_else(values.is_valid(), pa.scalar(True), pa.scalar(None, pa.bool_()))
        return {name: texts.take(known.indices), f"{name}_b64_encoded": flags}
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raise InvalidMessage(f"a {name} is not UTF-8: give a {name} of type binary") from None
    return {name: values.cast(pa.string())}
