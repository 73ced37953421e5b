"""Notes in the delay index's table: what each segment holds, and which positions are indexed."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.storage.delay_index.delay_segments import Places, Statistics
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.table_specs import DELAY_INDEX, TIME

ENTRY, SEGMENT, INDEXED = "entry", "segment", "indexed"
NO_BUCKET = -1


class Indexed(NamedTuple):
    """The indexed *positions* of a topic partition, in the buckets from number ``since`` on."""

    since: int
    positions: Positions

    def holds(self, first: int, last: int) -> bool:
        return next(self.positions.gaps(first, last), None) is None


NOT_INDEXED = Indexed(0, Positions())


class NewBucket(NamedTuple):
    """A bucket that is written, but named by no commit yet."""

    number: int
    folder: AnyPath
    files: list[str]
    statistics: Statistics


def schema_of(kind: str) -> pa.Schema:
    names = {
        SEGMENT: ("topic_id", "partition", "due_time", "last_due_time", "entries", "path", "segment"),
        INDEXED: ("topic_id", "partition", "position", "last_position", "since_bucket"),
    }
    return pa.schema([DELAY_INDEX.schema.field(name) for name in names[kind]])


def segment_rows(new: NewBucket, places: Places) -> pa.Table:
    found = new.statistics
    here = [places.known[number] for number in found.places.tolist()]
    return pa.Table.from_arrays(
        [
            pa.array([place.topic_id for place in here], pa.string()),
            pa.array([place.partition for place in here], pa.int32()),
            pa.array(found.firsts).cast(TIME),
            pa.array(found.lasts).cast(TIME),
            pa.array(found.entries),
            pa.array([new.files[file] for file in found.files.tolist()], pa.string()),
            pa.array(found.segments),
        ],
        schema=schema_of(SEGMENT),
    )


def statistics_from(rows: pa.Table, files: Mapping[str, int], places: Places) -> Statistics:
    """The statistics from rows of :func:`segment_rows`; *files* numbers the bucket's files."""
    of = [places.number(*of) for of in zip(rows["topic_id"].to_pylist(), rows["partition"].to_pylist())]
    firsts, lasts = (rows[name].cast(pa.int64()).to_numpy() for name in ("due_time", "last_due_time"))
    numbers = np.array([files[name] for name in rows["path"].to_pylist()], np.int32)
    return Statistics(
        np.array(of, np.int32), numbers, rows["segment"].to_numpy(), firsts, lasts, rows["entries"].to_numpy()
    )


def indexed_rows(indexed: Mapping[int, Indexed], buckets: Iterable[int], places: Places) -> pa.Table:
    """Rows of what is indexed, by number of the place, and of all buckets' numbers."""
    rows: list[tuple] = [
        (*places.known[number], first, last, each.since)
        for number, each in indexed.items()
        for first, last in [*each.positions] or [(None, None)]
    ]
    rows += [(None, None, None, None, number) for number in buckets]
    schema = schema_of(INDEXED)
    columns = zip(*rows) if rows else [()] * len(schema)
    return pa.Table.from_arrays([pa.array(column, field.type) for column, field in zip(columns, schema)], schema=schema)


def indexed_from(rows: pa.Table, places: Places) -> tuple[dict[int, Indexed], set[int]]:
    """What is indexed and the buckets' numbers, from rows of :func:`indexed_rows`."""
    indexed: dict[int, Indexed] = {}
    buckets = set()
    for topic_id, partition, first, last, number in zip(*(column.to_pylist() for column in rows.columns)):
        if topic_id is None:
            buckets.add(number)
            continue
        known = indexed.setdefault(places.number(topic_id, partition), Indexed(number, Positions()))
        if first is not None:
            known.positions.add(first, last)
    return indexed, buckets
