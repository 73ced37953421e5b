"""Segments of the delay index: row groups of its files, ordered by (deliver time in ms, topic, partition, position)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_spark.protocol.keys.sticky_key import NO_KEY_HASH
from pulsar_spark.storage.delay_index.delay_files import check_name, footer_of
from pulsar_spark.storage.delay_index.delayed import NONE_DUE, Due
from pulsar_spark.storage.delta.file_statistics import footer_columns
from pulsar_spark.storage.store.store import AnyPath, store_of

SEGMENT_ENTRIES = 1 << 15
FILE_ENTRIES = 1 << 21
_MS = 1000
_CODED = {"due_time": "DELTA_BINARY_PACKED", "position": "DELTA_BINARY_PACKED", "sticky_key_hash": "PLAIN"}


class Place(NamedTuple):
    topic_id: str
    partition: int


class Places:
    """Numbers for topic partitions, by first use."""

    def __init__(self):
        self.known: list[Place] = []
        self._numbers: dict[Place, int] = {}

    def __len__(self) -> int:
        return len(self.known)

    def number(self, topic_id: str, partition: int) -> int:
        place = Place(topic_id, partition)
        found = self._numbers.setdefault(place, len(self.known))
        if found == len(self.known):
            self.known.append(place)
        return found

    def find(self, topic_id: str, partition: int) -> int | None:
        """The number of a known topic partition; None for another."""
        return self._numbers.get(Place(topic_id, partition))

    def ranks(self) -> np.ndarray:
        """The rank of each number's topic partition in files."""
        ranks = np.empty(len(self.known), np.int32)
        ranks[sorted(range(len(self.known)), key=self.known.__getitem__)] = np.arange(len(self.known))
        return ranks


class Entries(NamedTuple):
    """Entries of topic partitions whose numbers are ``places`` (int32)."""

    due: Due
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.places)

    def part(self, places: slice | np.ndarray) -> "Entries":
        return Entries(self.due.part(places), self.places[places])


NO_ENTRIES = Entries(NONE_DUE, np.empty(0, np.int32))


def joined(parts: Iterable[Entries]) -> Entries:
    parts = [NO_ENTRIES, *parts]
    due = Due(*(np.concatenate(columns) for columns in zip(*(part.due for part in parts))))
    return Entries(due, np.concatenate([part.places for part in parts]))


def together(parts: Iterable[Entries], ranks: np.ndarray) -> Entries:
    """The entries of *parts*, by (deliver time, rank of the topic partition, position)."""
    found = joined(parts)
    return found.part(np.lexsort((found.due.positions, ranks[found.places], found.due.times)))


class Statistics(NamedTuple):
    """Arrays with a row for each topic partition in each segment of a bucket.

    Columns: the partition's number, the file's number, the segment, first and last deliver time (microseconds), number
    of entries.
    """

    places: np.ndarray
    files: np.ndarray
    segments: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    entries: np.ndarray

    def part(self, at: slice | np.ndarray) -> "Statistics":
        return Statistics(*(column[at] for column in self))

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, int, int]]) -> "Statistics":
        columns = zip(*rows) if rows else [()] * 6
        types = (np.int32, np.int32, np.int32, np.int64, np.int64, np.int64)
        return cls._make(np.array(column, each) for column, each in zip(columns, types))

    @classmethod
    def joined(cls, parts: Sequence["Statistics"]) -> "Statistics":
        return cls(*(np.concatenate(columns) for columns in zip(cls.of([]), *parts)))


def statistics_of(entries: Entries, file: int, segment: int) -> Statistics:
    order = np.argsort(entries.places, kind="stable")
    places, times = entries.places[order], entries.due.times[order]
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    ends = np.append(starts[1:], len(places))
    files, segments = (np.full(len(starts), number, np.int32) for number in (file, segment))
    return Statistics(places[starts], files, segments, times[starts], times[ends - 1], ends - starts)


def write_segments(
    path: AnyPath | pa.NativeFile, segments: Iterable[Entries], places: Sequence[Place], *, file: int
) -> Statistics:
    """Write *segments* in order to a new file or sink; *file* is its number in the bucket."""
    found: list[Statistics] = []
    schema = pa.schema(
        [
            ("topic_id", pa.dictionary(pa.int32(), pa.string())),
            ("partition", pa.int32()),
            ("due_time", pa.timestamp("ms", tz="UTC")),
            ("position", pa.int64()),
            ("sticky_key_hash", pa.int32()),
        ]
    )
    writer = pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        store_schema=False,
        use_dictionary=["topic_id", "partition"],
        column_encoding=_CODED,
        write_page_checksum=True,
    )
    with writer:
        for entries in segments:
            if len(entries):
                found.append(statistics_of(entries, file, len(found)))
                writer.write_table(_table_of(entries, places, schema), row_group_size=SEGMENT_ENTRIES)
    return Statistics.joined(found)


def _table_of(entries: Entries, places: Sequence[Place], schema: pa.Schema) -> pa.Table:
    numbers, indexes = np.unique(entries.places, return_inverse=True)
    here = [places[number] for number in numbers.tolist()]
    topics = {topic_id: index for index, topic_id in enumerate(dict.fromkeys(place.topic_id for place in here))}
    of_place = np.array([topics[place.topic_id] for place in here], np.int32)
    partitions = np.array([place.partition for place in here], np.int32)
    due = entries.due
    return pa.Table.from_arrays(
        [
            pa.DictionaryArray.from_arrays(pa.array(of_place[indexes]), pa.array(list(topics), pa.string())),
            pa.array(partitions[indexes]),
            pa.array(due.times // _MS).cast(schema.field("due_time").type),
            pa.array(due.positions),
            pa.array(due.hashes, mask=due.hashes == NO_KEY_HASH),
        ],
        schema=schema,
    )


class SegmentFile:
    """An open file of a bucket; an error of the system or Arrow if it is unreadable."""

    def __init__(self, path: AnyPath):
        check_name(path, footer_of(path))
        self._file = pq.ParquetFile(store_of(path).parquet(path), page_checksum_verification=True)
        self.segments = self._file.num_row_groups

    def read(self, segment: int, places: Places, only: int | None = None) -> Entries:
        """The entries of a segment, in order; *only* is their place if it is known."""
        columns = ["due_time", "position", "sticky_key_hash"] + (["topic_id", "partition"] if only is None else [])
        rows = self._file.read_row_group(segment, columns=columns)
        times = rows["due_time"].cast(pa.int64()).to_numpy() * _MS
        hashes = rows["sticky_key_hash"].fill_null(NO_KEY_HASH).to_numpy()
        due = Due(rows["position"].to_numpy(), times, hashes)
        return Entries(due, np.full(len(due), only, np.int32) if only is not None else _places_of(rows, places))

    def bounds(self) -> Iterator[tuple[int, int, int, int]]:
        """(segment, first deliver time, last, entries) of each segment."""
        metadata = self._file.metadata
        paths = footer_columns(metadata)
        for segment in range(self.segments):
            group = metadata.row_group(segment)
            found = group.column(paths.index("due_time")).statistics
            yield segment, found.min_raw * _MS, found.max_raw * _MS, group.num_rows


def _places_of(rows: pa.Table, places: Places) -> np.ndarray:
    topics = rows["topic_id"].combine_chunks().dictionary_encode()
    together = topics.indices.to_numpy().astype(np.int64) << 32 | rows["partition"].to_numpy().astype(np.uint32)
    each, indexes = np.unique(together, return_inverse=True)
    names = topics.dictionary.to_pylist()
    known = [
        places.number(names[topic], np.int64(partition).astype(np.int32).item())
        for topic, partition in zip((each >> 32).tolist(), (each & 0xFFFFFFFF).tolist())
    ]
    return np.array(known, np.int32)[indexes]
