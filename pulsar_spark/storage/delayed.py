"""Deliver times read from their topic (semantics 5.1), and delayed entries in arrays: what the delay index is made
of."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.delays import Checkpoint, are_delayed, due_order, whole_ms
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.chunk_groups import ChunkGroups
from pulsar_spark.storage.entries import read_slice
from pulsar_spark.storage.key_hashes import read_hashes
from pulsar_spark.storage.store import AnyPath


class Due(NamedTuple):
    """Delayed entries of a topic partition in order of (deliver time, position): their positions (int64), deliver times
    in microseconds (int64) and sticky-key hashes (int32)."""

    positions: np.ndarray
    times: np.ndarray
    hashes: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, places: slice | np.ndarray) -> "Due":
        """Those at these places."""
        return Due(*(column[places] for column in self))

    def between(self, after: int, until: int | None) -> "Due":
        """Those with *after* < deliver time <= *until*; all behind *after* without it."""
        return self.part(slice(*places_between(self.times, after, until)))


NONE_DUE = Due(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))


class CheckpointEntries:
    """The entries of checkpoints, as *read* gives them; those of the last *most* are kept, at 20 bytes an entry."""

    def __init__(self, read: Callable[[Checkpoint], Due], most: int):
        self._read, self._most = read, most
        self._known: OrderedDict[Checkpoint, Due] = OrderedDict()

    def of(self, checkpoint: Checkpoint) -> Due:
        found = self._known.get(checkpoint)
        if found is None:
            found = self._known[checkpoint] = self._read(checkpoint)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        self._known.move_to_end(checkpoint)
        return found

    def forget(self, checkpoint: Checkpoint) -> None:
        self._known.pop(checkpoint, None)

    def let_go(self, below: int) -> None:
        """Forget the checkpoints that end below a number."""
        for checkpoint in [each for each in self._known if each.last < below]:
            del self._known[checkpoint]


def places_between(times: np.ndarray, after: int, until: int | None) -> tuple[int, int]:
    """Where in *times*, which ascend, those behind *after* up to *until* begin, and end."""
    first = int(np.searchsorted(times, after, "right"))
    return first, len(times) if until is None else max(first, int(np.searchsorted(times, until, "right")))


def in_order(parts: Iterable[Due]) -> Due:
    """Entries of *parts*, in one order."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        found = parts[0] if parts else NONE_DUE
        is_in_order = (found.times[1:] > found.times[:-1]).all()
    else:
        found, is_in_order = Due(*(np.concatenate(columns) for columns in zip(*parts))), False
    return found if is_in_order else found.part(due_order(found.times, found.positions))


def has_delayed(run: Run) -> bool:
    """May any entry of the run be in the index?"""
    return run.has_delayed and run.delayed_after is not None


def deliver_times(table: AnyPath, run: Run) -> pa.Array:
    """The deliver time of each entry of *run*, as its producer gave it, in microseconds (protocol.delays.whole_ms),
    null without one. An entry's first message decides.

    What waits is decided once, and counted by everybody who reads it, at whatever time: so an entry that is deleted
    meanwhile waits all the same, and comes due with nothing in it. Only what is lost, or was deleted and vacuumed,
    waits for nothing."""
    rows = read_slice(table, [run], ["deliver_at_time"], as_published=True)
    times = rows["deliver_at_time"].cast(pa.int64()).combine_chunks()
    return pa.array(whole_ms(times.fill_null(0).to_numpy()), mask=times.is_null().to_numpy(zero_copy_only=False))


def delayed_in(table: AnyPath, run: Run, chunks: ChunkGroups) -> tuple[np.ndarray, np.ndarray]:
    """The positions, ascending, and deliver times of the delayed entries of a run that :func:`has_delayed`. Every chunk
    of a message says its deliver time: the one that completes it counts. *chunks* are those of the topic partition."""
    times = deliver_times(table, run).fill_null(run.delayed_after).to_numpy()
    places = np.flatnonzero(are_delayed(times, run.delayed_after))
    positions = places + run.first_position
    if run.may_have_chunks:
        is_one = ~chunks.are_parts(positions)
        positions, places = positions[is_one], places[is_one]
    return positions, times[places]


def read_delayed(table: AnyPath, runs: Iterable[Run], chunks: ChunkGroups) -> Due:
    """The delayed entries of *runs* of a topic partition in *table*, read from its files."""
    return in_order(_delayed_of(table, run, chunks) for run in runs if has_delayed(run))


def _delayed_of(table: AnyPath, run: Run, chunks: ChunkGroups) -> Due:
    positions, times = delayed_in(table, run, chunks)
    hashes = read_hashes(table, [run])[positions - run.first_position] if len(positions) else NONE_DUE.hashes
    return Due(positions, times, hashes)
