"""Publish commits: the id of each, and the positions of its entries.

A publish id is a UUIDv7 (RFC 9562, section 5.7), which sorts by time; without hyphens it fits Delta's file statistics.
Positions are dense per topic partition, by commit and entry id, so all readers of the log agree."""

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from pulsar_spark.errors import CorruptState

NO_POSITION = -1
"""``first_position`` of a run without numbers."""


class NotAPublish(CorruptState):
    """Rows in the log were not written as a publish, so they have no positions."""


class Run(NamedTuple):
    """Entries of equal batch size in one file of a publish commit: a row of ``ledgers``. Positions and entry ids count
    up by one.

    Entries with a deliver time after ``delayed_after`` (microseconds) are delayed; None: none is, or the run is older
    than the delay index. ``chunks_from`` is the position from which to read chunks to join those of the run; None:
    none, or unknown."""

    first_position: int
    entries: int
    batch_size: int
    ledger_id: int
    publish_id: str
    first_entry_id: int
    path: str
    min_publish_time: datetime | None
    max_publish_time: datetime | None
    bytes: int
    has_delayed: bool
    has_chunks: bool
    has_keys: bool
    delayed_after: int | None = None
    chunks_from: int | None = None
    has_encoded: bool = False

    @property
    def may_have_chunks(self) -> bool:
        """Whether any of its entries may be a chunk; batches have none."""
        return self.has_chunks and self.batch_size == 1

    @property
    def last_position(self) -> int:
        return self.first_position + self.entries - 1

    @property
    def last_entry_id(self) -> int:
        return self.first_entry_id + self.entries - 1

    @property
    def to_position(self) -> int:
        """The difference from an entry id of the run to its position."""
        return self.first_position - self.first_entry_id

    def part(self, first: int, last: int) -> "Run":
        if first <= self.first_position and last >= self.last_position:
            return self
        first, last = max(first, self.first_position), min(last, self.last_position)
        return self._replace(
            first_entry_id=self.first_entry_id + first - self.first_position,
            first_position=first,
            entries=last - first + 1,
        )

    def from_entry(self, entry_id: int) -> "Run | None":
        passed = max(0, entry_id - self.first_entry_id)
        position = self.first_position if self.first_position == NO_POSITION else self.first_position + passed
        rest = self._replace(
            first_position=position, first_entry_id=self.first_entry_id + passed, entries=self.entries - passed
        )
        return rest if rest.entries > 0 else None


class PublishedFile(NamedTuple):
    """A file in the log: entry ids first..last, rows, and the batch size, None if it varies."""

    partition: int
    publish_id: str
    first_entry_id: int
    last_entry_id: int
    rows: int
    batch_size: int | None
    path: str
    min_publish_time: datetime | None
    max_publish_time: datetime | None
    bytes: int
    has_delayed: bool
    has_chunks: bool
    has_keys: bool
    has_encoded: bool = False

    @property
    def entries(self) -> int:
        return self.last_entry_id - self.first_entry_id + 1

    def as_run(self, ledger_id: int) -> Run:
        """Its entries as a run without positions, of publish commit *ledger_id*; batch size 0 if it varies."""
        return self.run(ledger_id, NO_POSITION, self.first_entry_id, self.entries, self.batch_size or 0)

    def run(self, ledger_id: int, first_position: int, first_entry_id: int, entries: int, batch_size: int) -> Run:
        return Run(
            first_position,
            entries,
            batch_size,
            ledger_id,
            self.publish_id,
            first_entry_id,
            self.path,
            self.min_publish_time,
            self.max_publish_time,
            self.bytes,
            self.has_delayed,
            self.has_chunks,
            self.has_keys,
            has_encoded=self.has_encoded,
        )


def number_files(
    files: Iterable[PublishedFile], *, ledger_id: int, ends: Mapping[int, int], batch_sizes: Mapping[str, list[int]]
) -> dict[int, list[Run]]:
    """Runs per partition of one publish commit. *ends* gives each partition's next position (default 0), *batch_sizes*
    every entry's size in files where it varies. :class:`NotAPublish` if rows and ids of a file disagree, or files of a
    partition share entries."""
    numbered: dict[int, list[Run]] = {}
    for file in sorted(files, key=lambda f: (f.partition, f.first_entry_id)):
        runs = numbered.setdefault(file.partition, [])
        position = runs[-1].last_position + 1 if runs else ends.get(file.partition, 0)
        entry_id = file.first_entry_id
        if runs and entry_id <= runs[-1].last_entry_id:
            raise NotAPublish(f"file {file.path!r}: another file also has entry {entry_id}")
        for batch_size, entries in _batches(file, batch_sizes):
            runs.append(file.run(ledger_id, position, entry_id, entries, batch_size))
            position, entry_id = position + entries, entry_id + entries
    return numbered


def _batches(file: PublishedFile, batch_sizes: Mapping[str, list[int]]) -> list[tuple[int, int]]:
    if file.path in batch_sizes:
        batches = [(size, len(list(same))) for size, same in groupby(batch_sizes[file.path])]
    else:
        batches = [(file.batch_size or 0, file.entries)]
    is_whole = (
        sum(count for _, count in batches) == file.entries and sum(size * count for size, count in batches) == file.rows
    )
    if not is_whole or any(size < 1 for size, _ in batches):
        raise NotAPublish(
            f"file {file.path!r}: {file.rows} rows do not make up entries {file.first_entry_id} to "
            f"{file.last_entry_id}: entry ids must be dense; the file was not written by a producer of this package"
        )
    return batches


def publish_id(time_ms: int, random_bits: int) -> str:
    """The UUIDv7 of a Unix time in ms and 74 random bits.

    >>> publish_id(0x017F22E279B0, 0xCC3 << 62 | 0x18C4DC0C0C07398F)
    '017f22e279b07cc398c4dc0c0c07398f'
    """
    bits = random_bits & ((1 << 74) - 1)
    return uuid.UUID(int=time_ms << 80 | 0x7 << 76 | bits >> 62 << 64 | 0b10 << 62 | bits & ((1 << 62) - 1)).hex
