"""Find which chunks of a topic make up messages: group their rows, without payloads, by uuid in Spark.

The ends of each message are known, and a group counts only if it begins and ends there. So a message with a deleted or
lost chunk is not found. The driver reads the rows between the ends, a limited number at a time."""

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
"""The most entries, from first to last chunks, that one job groups; a single message may have more."""

_KEPT_BYTES = 8 << 20
"""The most payload bytes kept while sizes are read; joining so few here is faster than in workers."""
_OF_PAYLOADS = (PAYLOAD_BYTES, SIZE, "payload")

Units = Mapping[int, Mapping[int, int]]
"""By partition: the first position of each message, by its last."""


def grouped_parts(
    spark: SparkSession, topic: Topic, units: Units, spans_of: Callable[[int], SpansOf], *, with_sizes: bool = False
) -> list[Parts]:
    """The chunks of the messages *units* in the topic's current table; none for incomplete ones.

    *spans_of* gives the runs of a partition. *with_sizes* also reads payloads for their sizes, and keeps small ones."""
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
    if not found:
        nothing = np.zeros(0, np.int64)
        return parts._replace(sizes=Sizes(nothing, nothing), payloads=pa.array([], pa.binary()) if is_kept else None)
    rows = pa.concat_tables(found)
    positions = rows["position"].to_numpy()
    at = np.argsort(positions, kind="stable")
    at = at[np.searchsorted(positions, parts.positions, sorter=at)]
    sizes = Sizes(*(rows[name].fill_null(NOTHING).to_numpy()[at] for name in (PAYLOAD_BYTES, SIZE)))
    payloads = rows["payload"].combine_chunks().take(pa.array(at)).fill_null(b"") if is_kept else None
    return parts._replace(sizes=sizes, payloads=payloads)


def _messages(groups: DataFrame) -> Iterator[tuple[int, int, int, np.ndarray]]:
    found = groups.select("partition", "rows").toArrow()
    of_group = messages_of(found["rows"].combine_chunks())
    messages = pa.Table.from_struct_array(of_group.flatten())
    partitions = found["partition"].combine_chunks().take(of_group.value_parent_indices())
    rows = messages.append_column("partition", partitions).sort_by("last").combine_chunks()
    ends = np.append(0, np.cumsum(rows["parts"].combine_chunks().value_lengths().to_numpy()))
    parts = np.split(rows["parts"].combine_chunks().flatten().to_numpy(), ends[1:-1])
    yield from zip(*(rows[name].to_pylist() for name in ("partition", "first", "last")), parts)


def _chunks(
    topic: Topic, units: Units, spans_of: Callable[[int], SpansOf], columns: Sequence[str], room: Room | None = None
) -> Iterator[list[tuple[int, pa.Table]]]:
    """The rows between each message's first and last chunk, by partition, in limited batches."""
    batch: list[tuple[int, pa.Table]] = []
    for partition, ends in units.items():
        for spans in _stretches(ends):
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


def _stretches(ends: Mapping[int, int]) -> Iterator[list[tuple[int, int]]]:
    spans = np.array([(first, last) for last, first in ends.items()], np.int64).reshape(-1, 2)
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    lasts = np.maximum.accumulate(spans[:, 1])
    begins = np.flatnonzero(np.append(True, spans[1:, 0] > lasts[:-1])[: len(spans)])
    firsts, lasts = spans[begins, 0], lasts[np.append(begins[1:], len(spans)) - 1] if len(begins) else lasts
    number = np.cumsum(lasts - firsts + 1) // _AT_ONCE
    for some in np.split(np.arange(len(firsts)), np.flatnonzero(np.diff(number)) + 1) if len(firsts) else ():
        yield list(zip(firsts[some].tolist(), lasts[some].tolist()))
