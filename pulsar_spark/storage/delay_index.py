"""The delay index: which entries wait for their deliver time, in order of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.entries import read_slice
from pulsar_spark.storage.key_hashes import read_hashes


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


NONE_DUE = Due(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))


def in_order(parts: Iterable[Due]) -> Due:
    """Entries of *parts*, in one order."""
    positions, times, hashes = (np.concatenate(columns) for columns in zip(NONE_DUE, *parts))
    found = Due(positions, times, hashes)
    return found.part(np.lexsort((positions, times)))


def read_delayed(table: Path, runs: Iterable[Run]) -> Due:
    """The delayed entries of *runs* of the topic in *table*, read from its files. An entry's first message decides; one
    that is deleted or lost waits for nothing."""
    return in_order(_delayed_of(table, run) for run in runs if run.has_delayed and run.delayed_after is not None)


def _delayed_of(table: Path, run: Run) -> Due:
    slice_ = read_slice(table, [run], ["deliver_at_time"])
    times = slice_["deliver_at_time"].cast(pa.int64()).fill_null(run.delayed_after).to_numpy()
    places = np.flatnonzero(times > run.delayed_after)
    hashes = read_hashes(table, [run])[places] if len(places) else NONE_DUE.hashes
    return Due(places + run.first_position, times[places], hashes)
