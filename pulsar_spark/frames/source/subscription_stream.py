"""A stream with a subscription: a committed micro-batch acknowledges what it delivered.

Spark calls the reader in one Python process on the driver, which is a consumer of each topic, and reads slices of files
in its tasks. An offset names the rounds that delivered a micro-batch (see subscription_offsets). Spark names an offset
as the start of the next micro-batch only once the one before is committed, so it is acknowledged then."""

import signal
import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pulsar_spark.errors import named
from pulsar_spark.frames.consuming.membership import MAX_MESSAGES, SubscribeOptions
from pulsar_spark.frames.source.batch_reader import SliceReader
from pulsar_spark.frames.source.delivered_slices import DeliveredSlice
from pulsar_spark.frames.source.message_slices import MessageSlice
from pulsar_spark.frames.source.options import SourceOptions
from pulsar_spark.frames.source.slice_reading import read_slice
from pulsar_spark.frames.source.stream_consumers import StreamConsumers
from pulsar_spark.frames.source.subscription_offsets import TopicOffset, as_offset, parse_offset
from pulsar_spark.frames.source.worker_errors import in_one_line, is_worker
from pulsar_spark.payloads.encoding import PAYLOAD_ERROR


class SubscriptionReader(SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of a stream with a subscription."""

    def __init__(self, schema: StructType, options: SourceOptions):
        super().__init__(schema, options)
        self._options, self._subscription = options, options.subscription or ""
        self._checked = SubscribeOptions.checked(
            self._subscription,
            options.subscription_type,
            options.consumer_name,
            options.initial_position,
            options.priority_level,
        )._replace(lease_ms=options.lease_ms)
        self._stream: StreamConsumers | None = None
        self._ends = False

    def initialOffset(self) -> dict:
        return as_offset(self._subscription, {})

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of messages, or of bytes if only that is given."""
        if self._options.max_messages_per_trigger is None and self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadMaxRows(self._options.max_messages_per_trigger or MAX_MESSAGES)

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends = True

    @in_one_line
    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        """Acknowledge the micro-batch that ended at *start*, and plan the next of what is delivered meanwhile."""
        known = parse_offset(start, self._subscription)
        is_all = isinstance(limit, ReadAllAvailable)
        stream = self._open(known, ends=self._ends or is_all)
        planned = stream.plan(known, is_all=is_all)
        return start if planned is None else as_offset(self._subscription, {**known, **planned})

    @in_one_line
    def reportLatestOffset(self) -> dict | None:
        """The backlog of each topic."""
        if self._stream is None:
            return None
        return {"subscription": self._subscription, "topics": self._stream.backlogs()}

    @in_one_line
    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        """The slices of the micro-batch that ends at *end*."""
        known, wanted = (parse_offset(each, self._subscription) for each in (start, end))
        if known == wanted:
            return []
        stream = self._open(wanted, ends=self._ends)
        return stream.slices({name: offset for name, offset in wanted.items() if known.get(name) != offset})

    def _rows(self, slice_: MessageSlice) -> Iterator[pa.Table]:
        assert isinstance(slice_, DeliveredSlice)  # as :meth:`partitions` makes them
        names = dict.fromkeys((*self._columns.needed, *(["batch_index"] if slice_.ack_sets else [])))
        for rows in read_slice(slice_, tuple(names), self._decoding):
            left = slice_.left(rows)
            if self._options.fail_on_data_loss:
                check_readable(left, slice_)
            counts = pa.repeat(pa.scalar(slice_.redelivery_count, pa.int32()), left.num_rows)
            yield left.append_column("redelivery_count", counts)

    @in_one_line
    def commit(self, end: dict) -> None:
        """Acknowledge what ended at *end*, if that was not done yet."""
        known = parse_offset(end, self._subscription)
        self._open(known, ends=self._ends).acknowledge(known)

    def stop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _open(self, known: dict[str, TopicOffset], *, ends: bool) -> StreamConsumers:
        if self._stream is None:
            stop_when_terminated()
            self._stream = StreamConsumers(self._options, self._checked, known, ends)
        return self._stream


def check_readable(rows: pa.Table, slice_: DeliveredSlice) -> None:
    """Raise the error of the first message that cannot be read."""
    errors = rows[PAYLOAD_ERROR]
    if errors.null_count == rows.num_rows:
        return
    at = errors.is_valid().index(True).as_py()
    kind, _, text = errors[at].as_py().partition(": ")
    where = "" if slice_.partition < 0 else f" of partition {slice_.partition}"
    raise named(kind)(
        f"the message of topic {slice_.topic!r} at position {rows['position'][at].as_py()}{where} cannot be read: "
        f"{text}; correct this, or give failOnDataLoss 'false' to get it with a payload_error instead of a payload"
    )


def stop_when_terminated() -> None:
    """Let Spark's process close the stream when it is terminated, as at a query's end."""
    if is_worker():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
