"""The runs of one topic partition, packed in memory from some position on.

A run is a row of ``ledgers``: consecutive entries of equal batch size in one file (see protocol.topics.numbering).
Runs that all cursors have passed are dropped, and read again after a seek back, for example.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.delays.instants import from_micros, to_micros
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.ledgers.packed_columns import Column, Flags, Optional, Texts, numbers

FEW = 1024
"""Fewer runs than this are not dropped from memory."""


class Past(NamedTuple):
    """Summary of the runs that are not in memory."""

    runs: int = 0
    end_position: int = 0
    last_ledger_id: int = -1
    messages: int = 0
    last_chunk_position: int = -1
    last_delayed_position: int = -1


NOTHING = Past()


class PackedRuns:
    """The runs of one topic partition by position, packed, with sums from which messages are counted.

    *past* sums up runs that are not in memory; *read* gives the rows of those that begin below a position. The index of
    a run counts them too, so it stays when runs are dropped.
    """

    def __init__(self, past: Past = NOTHING, read: Callable[[int], pa.Table] | None = None):
        self._past, self._read = past, read
        self._numbers = {name: array("q") for name in ("first_position", "entries", "batch_size", "ledger_id")}
        self._numbers |= {name: array("q") for name in ("first_entry_id", "bytes", "messages_before")}
        self._has_delayed, self._has_chunks, self._delayed_after = Flags(), Flags(), Optional()
        self._others: dict[str, Column] = {
            "publish_id": Texts(),
            "path": Texts(),
            "min_publish_time": Optional(to_micros, from_micros),
            "max_publish_time": Optional(to_micros, from_micros),
            "has_delayed": self._has_delayed,
            "has_chunks": self._has_chunks,
            "has_keys": Flags(),
            "has_encoded": Flags(),
            "delayed_after": self._delayed_after,
            "chunks_from": Optional(),
        }
        """Fields of a run that may be null, or are not numbers."""
        self._firsts, self._ledger_ids = self._numbers["first_position"], self._numbers["ledger_id"]
        self._columns: list[Any] = [
            self._numbers[name] if name in self._numbers else self._others[name] for name in Run._fields
        ]
        self.last_delayed_position = past.last_delayed_position
        """No entry after this position waits for its deliver time (protocol.delays)."""
        self.last_chunk_position = past.last_chunk_position
        """No entry after this position is a chunk (protocol.chunks.chunking); -1 without chunks."""
        self._chunk_runs = array("q")
        """Indexes of the runs that may have chunks."""

    def __len__(self) -> int:
        return self._past.runs + len(self._firsts)

    def __getitem__(self, index: int) -> Run:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        at = self._at(index % len(self))
        return Run._make(column[at] for column in self._columns)

    def _at(self, index: int) -> int:
        if index < self._past.runs:
            self.recall()
        return index - self._past.runs

    @property
    def end_position(self) -> int:
        """Position the next entry gets."""
        return self._firsts[-1] + self._numbers["entries"][-1] if self._firsts else self._past.end_position

    @property
    def last_ledger_id(self) -> int:
        """The last publish commit with entries here, -1 for none."""
        return self._ledger_ids[-1] if self._firsts else self._past.last_ledger_id

    def add(self, run: Run) -> None:
        """Append the next run; a known one is skipped."""
        if run.first_position < self.end_position:
            return
        if run.first_position > self.end_position:
            raise CorruptState(
                f"ledger {run.ledger_id}: positions {self.end_position} to {run.first_position - 1} are missing: "
                "rebuild the ledgers table"
            )
        self._numbers["messages_before"].append(self.messages_before(run.first_position))
        for column, value in zip(self._columns, run):
            column.append(value or 0 if isinstance(column, array) else value)
        if run.delayed_after is not None:
            self.last_delayed_position = run.last_position
        if run.may_have_chunks:
            self._chunk_runs.append(len(self) - 1)
            self.last_chunk_position = run.last_position

    def extend(self, rows: pa.Table) -> None:
        """Append the runs of this partition's *rows*, like :meth:`add`."""
        end, messages_before, count = self.end_position, self.messages_before(self.end_position), len(self)
        rows = rows.filter(pc.greater_equal(rows["first_position"], end)).sort_by("first_position")
        columns = {name: rows.column(name).combine_chunks() for name in Run._fields}
        known = {name: numbers(columns[name]) for name in self._numbers if name in columns}
        ends = known["first_position"] + known["entries"]
        if (known["first_position"] != np.concatenate([[end], ends[:-1]])).any():
            for run in _runs(rows):
                self.add(run)
            return
        messages = known["entries"] * known["batch_size"]
        known["messages_before"] = np.cumsum(messages) - messages + messages_before
        for name, packed in self._numbers.items():
            packed.frombytes(known[name].astype(np.int64).tobytes())
        for name, column in self._others.items():
            column.extend(columns[name])
        delayed = np.flatnonzero(columns["delayed_after"].is_valid().to_numpy(zero_copy_only=False))
        if len(delayed):
            self.last_delayed_position = int(ends[delayed[-1]]) - 1
        may_have_chunks = pc.fill_null(columns["has_chunks"], False).to_numpy(zero_copy_only=False)
        chunks = np.flatnonzero(may_have_chunks & (known["batch_size"] == 1))
        self._chunk_runs.extend((chunks + count).tolist())
        if len(chunks):
            self.last_chunk_position = int(ends[chunks[-1]]) - 1

    @property
    def begins_at(self) -> int:
        """The first position whose run is in memory."""
        return self._past.end_position

    @property
    def in_memory(self) -> int:
        return len(self._firsts)

    def drop_before(self, position: int, read: Callable[[int], pa.Table]) -> None:
        """Drop the runs that end before *position*, unless few; *read* as for a new object."""
        count = bisect_right(self._firsts, position) - (position < self.end_position)  # the run of *position* stays
        if count < max(FEW, len(self._firsts) // 2):
            return
        end = self._firsts[count - 1] + self._numbers["entries"][count - 1]
        gone = bisect_left(self._chunk_runs, self._past.runs + count)
        last_chunk = self[self._chunk_runs[gone - 1]].last_position if gone else self._past.last_chunk_position
        past = Past(self._past.runs + count, end, self._ledger_ids[count - 1], self.messages_before(end), last_chunk)
        for packed in self._numbers.values():
            del packed[:count]
        for column in self._others.values():
            column.drop_first(count)
        del self._chunk_runs[:gone]
        self._past, self._read = past, read

    def recall(self) -> None:
        """Read the runs that are not in memory."""
        if not self._past.runs or self._read is None:
            return
        before = PackedRuns()
        before.extend(self._read(self._past.end_position))
        if (len(before), before.end_position) != self._past[:2]:
            raise CorruptState(
                f"{len(before)} runs of a topic partition end at position {before.end_position}, there were "
                f"{self._past.runs} up to {self._past.end_position}: {DOCTOR}"
            )
        for name, packed in self._numbers.items():
            packed[:0] = before._numbers[name]
        for name, column in self._others.items():
            column.put_before(before._others[name])
        self._chunk_runs[:0] = before._chunk_runs
        self._past = NOTHING

    def index_of(self, position: int) -> int:
        """Index of the run of *position*, or of the last before it; -1 before the first."""
        if position < 0:
            return -1
        if position < self._past.end_position:
            self.recall()
        return self._past.runs + bisect_right(self._firsts, position) - 1

    def messages_before(self, position: int) -> int:
        """Messages of all entries below *position*."""
        if position == self._past.end_position:
            return self._past.messages
        index = self.index_of(position - 1)
        if index < 0:
            return 0
        at = self._at(index)
        entries = min(position - self._firsts[at], self._numbers["entries"][at])
        return self._numbers["messages_before"][at] + entries * self._numbers["batch_size"][at]


def _runs(rows: pa.Table) -> Iterator[Run]:
    yield from (Run._make(fields) for fields in zip(*(rows.column(name).to_pylist() for name in Run._fields)))
