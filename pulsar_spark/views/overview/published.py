"""What was published to each topic partition of a bundle, from all rows of ``ledgers``: counters, and publish times."""

from array import array
from bisect import bisect_right
from collections import defaultdict
from datetime import datetime
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import LogShortened
from pulsar_spark.protocol.delays.instants import from_micros, to_micros
from pulsar_spark.protocol.topics.numbering import NO_POSITION
from pulsar_spark.storage.delta.actions import Commit
from pulsar_spark.storage.delta.data_files import read_added
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.reader_rows import rows_from
from pulsar_spark.storage.delta.scan import open_table, reading
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import stored_rows
from pulsar_spark.storage.ledgers.packed_columns import numbers
from pulsar_spark.table_specs import LEDGERS

_NUMBERS = ("first_position", "entries", "batch_size", "ledger_id", "bytes", "min_publish_time", "max_publish_time")
_MAX_TIME = _NUMBERS.index("max_publish_time")
_COLUMNS = ["topic_id", "partition", *_NUMBERS, "has_chunks"]
_SCHEMA = pa.schema([LEDGERS.schema.field(name) for name in _COLUMNS])
Place = tuple[str, int]
"""A topic's id and one of its partitions."""


class Published:
    """One topic partition: its counters, and the publish times of its runs by position."""

    def __init__(self):
        self.end_position = self.messages = self.bytes = 0
        self.last_chunk_position = -1
        """No entry after this position is a chunk."""
        self._firsts, self._times = array("q"), array("q")
        self._last_file: tuple | None = None

    def published_at(self, position: int) -> datetime | None:
        """The earliest publish time in the file of an entry; None if unknown."""
        at = bisect_right(self._firsts, position) - 1
        return from_micros(self._times[at]) if at >= 0 and self._times[at] else None

    def add(self, runs: np.ndarray, may_have_chunks: np.ndarray) -> None:
        """Add *runs*: the columns of ``_NUMBERS`` as rows of an array, by position; known ones are skipped."""
        ends = np.maximum.accumulate(np.append(self.end_position, runs[0] + runs[1]))
        is_new = runs[0] >= ends[:-1]
        if not is_new.any():
            return
        runs, may_have_chunks = runs[:, is_new], may_have_chunks[is_new]
        firsts, entries, batch_sizes, *of_file = runs
        self.end_position = int(firsts[-1] + entries[-1])
        self.messages += int((entries * batch_sizes).sum())
        files = list(zip(*(column.tolist() for column in of_file)))  # runs of one file follow each other
        before = chain([self._last_file], files)
        self.bytes += sum(file[1] for file, earlier in zip(files, before) if file != earlier)
        self._last_file = files[-1]
        self._firsts.frombytes(firsts.tobytes())
        self._times.frombytes(of_file[2].tobytes())
        if may_have_chunks.any():
            at = np.flatnonzero(may_have_chunks)[-1]
            self.last_chunk_position = int(firsts[at] + entries[at]) - 1


class PublishedIndex(defaultdict[Place, Published]):
    """All topic partitions of a bundle, by topic id and partition; :meth:`catch_up` reads the new rows only."""

    def __init__(self, layout: Layout):
        super().__init__(Published)
        self._path = layout.broker_table(LEDGERS.name)
        self._log = TableLog(self._path)
        self._version: int | None = None

    def catch_up(self, since: datetime) -> dict[Place, tuple[int, int]]:
        """Read the new rows. Returns messages and bytes among them of files with a message published after *since*, by
        the producers' clocks."""
        version, parts = self._version, []
        try:
            if version is not None:
                for commit in self._log.commits(after=version):
                    parts.append(self._rows_of(commit))
                    version = commit.version
                late = self._add(pa.concat_tables(parts), since) if parts else {}
                self._version = version  # after what may fail
                return late
        except (LogShortened, FileNotFoundError):  # commits or their files were removed meanwhile
            self.clear()
            self._version = None
        opened = open_table(self._path)
        late = self._add(stored_rows(opened, _COLUMNS), since)
        self._version = opened.version()
        return late

    def _rows_of(self, commit: Commit) -> pa.Table:
        if commit.reader_rows is not None:
            return pa.Table.from_pylist(rows_from(commit.reader_rows, _SCHEMA), _SCHEMA)
        with reading(self._path):
            return read_added(self._path, commit, LEDGERS.schema, _COLUMNS)

    def _add(self, rows: pa.Table, since: datetime) -> dict[Place, tuple[int, int]]:
        late: dict[Place, tuple[int, int]] = {}
        rows = rows.filter(pc.greater(rows["first_position"], NO_POSITION))
        if not rows.num_rows:
            return late
        ids = pc.dictionary_encode(rows["topic_id"].combine_chunks())
        columns = np.stack([numbers(rows[name].combine_chunks()) for name in _NUMBERS])
        topics, partitions = ids.indices.to_numpy(), numbers(rows["partition"].combine_chunks())
        may_have_chunks = pc.fill_null(rows["has_chunks"], False).to_numpy() & (columns[2] == 1)
        order = np.lexsort((columns[0], partitions, topics))
        topics, partitions = topics[order], partitions[order]
        columns, may_have_chunks, after = columns[:, order], may_have_chunks[order], to_micros(since)
        is_new = (topics[1:] != topics[:-1]) | (partitions[1:] != partitions[:-1])
        starts = [0, *(np.flatnonzero(is_new) + 1).tolist()]
        for begin, end in zip(starts, [*starts[1:], len(topics)]):
            place = ids.dictionary[int(topics[begin])].as_py(), int(partitions[begin])
            runs = columns[:, begin:end]
            self[place].add(runs, may_have_chunks[begin:end])
            found = runs[:, runs[_MAX_TIME] > after]
            if found.shape[1]:
                files = {tuple(file) for file in found[3:].T.tolist()}
                late[place] = int((found[1] * found[2]).sum()), sum(file[1] for file in files)
        return late
