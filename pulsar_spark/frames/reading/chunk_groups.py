"""Find which chunks of a topic make up messages: group their rows, without payloads, by uuid in Spark.

The positions of each message's first and last chunk are known, and a group counts only if it begins and ends there. So
a message with a deleted or lost chunk is not found. The driver reads the rows between the two, a limited number at a
time."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.frames.reading.chunk_payloads import NOTHING, Parts, Sizes
from pulsar_spark.storage.chunks.chunk_rows import PAYLOAD_BYTES, Room, SpansOf, rows_of_chunks
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.transforms.chunks import GROUPED, SIZE, collect_groups, messages_of

_AT_ONCE = 1 << 17
"""The most entries between first and last chunks that one job groups; a single message may have more."""

_KEPT_BYTES = 8 << 20
"""The most payload bytes kept while sizes are read: the driver joins so few faster than Python workers."""
_OF_PAYLOADS = (PAYLOAD_BYTES, SIZE, "payload")
"""The bytes of a chunk's payload, those that it states for its whole message, and the payload."""

Units = Mapping[int, Mapping[int, int]]
"""Messages, by partition: the last position of each is mapped to its first."""


def grouped_parts(
    spark: SparkSession, topic: Topic, units: Units, spans_of: Callable[[int], SpansOf], *, with_sizes: bool = False
) -> list[Parts]:
    """The chunks of those messages of *units* that are complete in the topic's current table.

    *spans_of* gives the runs of a partition. *with_sizes* also reads payloads, for their sizes, and keeps them if all
    together are small."""
    columns = (*GROUPED, *_OF_PAYLOADS) if with_sizes else GROUPED
    room = Room(_KEPT_BYTES) if with_sizes else None
    found: dict[int, dict[int, np.ndarray]] = {partition: {} for partition in units}
    sizes: dict[int, list[pa.Table]] = {partition: [] for partition in units}
    for chunks in _chunks(topic, units, spans_of, columns, room):
        rows = pa.concat_tables([table for _, table in chunks])
        of_partition = np.repeat([partition for partition, _ in chunks], [table.num_rows for _, table in chunks])
        local = rows.select(["position", *GROUPED]).append_column("partition", pa.array(of_partition, pa.int32()))
        frame = local_frame(spark, local)
        for partition, first, last, positions in _messages(collect_groups(frame.coalesce(1))):
            if units[partition].get(last) == first:
                found[partition][last] = positions
        for partition, table in chunks if with_sizes else ():
            sizes[partition].append(table.select(["position", *_OF_PAYLOADS]))
    parts = [Parts.of(partition, found[partition]) for partition in sorted(found)]
    if room is None:
        return parts
    return [_with_sizes(each, sizes[each.partition], is_kept=room.is_enough) for each in parts]


def _with_sizes(parts: Parts, found: Sequence[pa.Table], *, is_kept: bool) -> Parts:
    """*parts* with the sizes of their payloads in the rows *found*, and with the payloads if they are kept."""
    if not found:
        nothing = np.zeros(0, np.int64)
        return parts._replace(sizes=Sizes(nothing, nothing), payloads=pa.array([], pa.binary()) if is_kept else None)
    rows = pa.concat_tables(found)
    positions = rows["position"].to_numpy()
    in_order = np.argsort(positions, kind="stable")
    at = in_order[np.searchsorted(positions, parts.positions, sorter=in_order)]
    sizes = Sizes(*(rows[name].fill_null(NOTHING).to_numpy()[at] for name in (PAYLOAD_BYTES, SIZE)))
    payloads = rows["payload"].combine_chunks().take(pa.array(at)).fill_null(b"") if is_kept else None
    return parts._replace(sizes=sizes, payloads=payloads)


def _messages(groups: DataFrame) -> Iterator[tuple[int, int, int, np.ndarray]]:
    """The messages that *groups* make up: partition, first and last position, and the positions of all chunks."""
    found = groups.select("partition", "rows").toArrow()
    of_group = messages_of(found["rows"].combine_chunks())
    messages = pa.Table.from_struct_array(of_group.flatten())
    partitions = found["partition"].combine_chunks().take(of_group.value_parent_indices())
    rows = messages.append_column("partition", partitions).sort_by("last").combine_chunks()
    bounds = np.append(0, np.cumsum(rows["parts"].combine_chunks().value_lengths().to_numpy()))
    parts = np.split(rows["parts"].combine_chunks().flatten().to_numpy(), bounds[1:-1])
    yield from zip(*(rows[name].to_pylist() for name in ("partition", "first", "last")), parts)


def _chunks(
    topic: Topic, units: Units, spans_of: Callable[[int], SpansOf], columns: Sequence[str], room: Room | None = None
) -> Iterator[list[tuple[int, pa.Table]]]:
    """The rows between each message's first and last chunk, by partition, in limited batches."""
    batch: list[tuple[int, pa.Table]] = []
    for partition, messages in units.items():
        for spans in _stretches(messages):
            found = (
                rows_of_chunks(topic.path, run, each, columns, room)
                for run, each in spans_of(partition)(spans)
                if run.may_have_chunks
            )
            batch += [(partition, rows) for rows in found if rows.num_rows]
            if sum(rows.num_rows for _, rows in batch) >= _AT_ONCE:
                yield batch
                batch = []
    if batch:
        yield batch


def _stretches(messages: Mapping[int, int]) -> Iterator[list[tuple[int, int]]]:
    """The stretches that *messages* of one partition cover, those that overlap joined, in lists of about
    :data:`_AT_ONCE` entries."""
    spans = np.array([(first, last) for last, first in messages.items()], np.int64).reshape(-1, 2)
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    lasts = np.maximum.accumulate(spans[:, 1])  # up to and including each span
    begins = np.flatnonzero(np.append(True, spans[1:, 0] > lasts[:-1])[: len(spans)])  # spans that overlap no earlier
    firsts, lasts = spans[begins, 0], lasts[np.append(begins[1:], len(spans)) - 1] if len(begins) else lasts
    in_list = np.cumsum(lasts - firsts + 1) // _AT_ONCE  # the number of each stretch's list
    for some in np.split(np.arange(len(firsts)), np.flatnonzero(np.diff(in_list)) + 1) if len(firsts) else ():
        yield list(zip(firsts[some].tolist(), lasts[some].tolist()))
