"""Delayed entries, and deliver times as read from the topic (semantics 5.1)."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.acknowledgement.positions import distinct, expanded
from pulsar_spark.protocol.delays.delays import are_delayed, due_order, whole_ms
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups
from pulsar_spark.storage.entries.key_hashes import read_hashes
from pulsar_spark.storage.entries.run_slices import read_slice
from pulsar_spark.storage.store.store import AnyPath


class Due(NamedTuple):
    """Delayed entries of a topic partition by (deliver time, position).

    Arrays: positions (int64), deliver times in microseconds (int64), sticky-key hashes (int32).
    """

    positions: np.ndarray
    times: np.ndarray
    hashes: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, places: slice | np.ndarray) -> "Due":
        return Due(*(column[places] for column in self))

    def between(self, after: int, until: int | None) -> "Due":
        """The entries with *after* < deliver time <= *until* (None: no limit)."""
        return self.part(slice(*places_between(self.times, after, until)))


NO_TIME = np.iinfo(np.int64).min
"""The deliver time of entries without one: earlier than any."""

NONE_DUE = Due(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))


def places_between(times: np.ndarray, after: int, until: int | None) -> tuple[int, int]:
    """Where in the ascending *times* those in (*after*, *until*] begin and end."""
    first = int(np.searchsorted(times, after, "right"))
    return first, len(times) if until is None else max(first, int(np.searchsorted(times, until, "right")))


def in_order(parts: Iterable[Due]) -> Due:
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        found = parts[0] if parts else NONE_DUE
        is_in_order = bool((found.times[1:] > found.times[:-1]).all())
    else:
        found, is_in_order = Due(*(np.concatenate(columns) for columns in zip(*parts))), False
    return found if is_in_order else found.part(due_order(found.times, found.positions))


def has_delayed(run: Run) -> bool:
    """Can any entry of the run be in the index?"""
    return run.has_delayed and run.delayed_after is not None


def deliver_times(table: AnyPath, runs: Iterable[Run]) -> np.ndarray:
    """The deliver time of each entry of *runs*, in microseconds (whole milliseconds); :data:`NO_TIME` without one.

    An entry's first message decides. Entries deleted since count too, until VACUUM removes their file, so that all
    readers agree.
    """
    runs = list(runs)
    is_delayed = np.repeat(np.array([run.has_delayed for run in runs], bool), [run.entries for run in runs])
    rows = read_slice(table, [run for run in runs if run.has_delayed], ["deliver_at_time"], as_published=True)
    given = rows["deliver_at_time"].cast(pa.int64())
    times = np.full(len(is_delayed), NO_TIME)
    times[is_delayed] = np.where(given.is_null().to_numpy(), NO_TIME, whole_ms(given.fill_null(0).to_numpy()))
    return times


def read_delayed(table: AnyPath, runs: Iterable[Run], chunks: ChunkGroups) -> Due:
    """The delayed entries of the ascending *runs* of a topic partition; of a chunked message only its last chunk."""
    runs = [run for run in runs if has_delayed(run)]
    if not runs:
        return NONE_DUE
    firsts, entries = np.array([(run.first_position, run.entries) for run in runs]).T
    positions, of_run = expanded(firsts, firsts + entries - 1), np.repeat(np.arange(len(runs)), entries)
    times = deliver_times(table, runs)
    is_delayed = are_delayed(times, np.array([run.delayed_after for run in runs])[of_run])
    is_delayed &= ~are_parts(chunks, positions, np.array([run.may_have_chunks for run in runs])[of_run])
    runs_with_delayed = distinct(of_run[is_delayed])
    hashes = np.empty(len(positions), np.int32)
    hashes[np.isin(of_run, runs_with_delayed)] = read_hashes(table, [runs[number] for number in runs_with_delayed])
    return in_order([Due(positions, times, hashes).part(is_delayed)])


def are_parts(chunks: ChunkGroups, positions: np.ndarray, may_be: np.ndarray) -> np.ndarray:
    """Which of the ascending *positions* are chunks that complete no message; *may_be* limits the search."""
    found = np.zeros(len(positions), bool)
    found[may_be] = chunks.are_parts(positions[may_be])
    return found
