"""The index of positions and message ids for clients: ``ledgers`` of their topics, in memory.

A topic's last runs are followed by commit; earlier ones are loaded when needed, and few are kept.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import DOCTOR, CorruptState, LogShortened
from pulsar_spark.protocol.topics.numbering import NO_POSITION, Run
from pulsar_spark.storage.delta.data_files import read_added
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.reader_rows import rows_from
from pulsar_spark.storage.delta.scan import open_table, reading
from pulsar_spark.storage.delta.table_parts import give_memory_back, term
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import by_partition, stored_rows
from pulsar_spark.storage.ledgers.needed_runs import last_runs, runs_from, stored_runs
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import LEDGERS

_COLUMNS = ["topic_id", "partition", *Run._fields]
_SCHEMA = pa.schema([LEDGERS.schema.field(name) for name in _COLUMNS])
STRETCH = 1 << 13
"""Runs of a topic partition that are loaded at a time, up to twice as many."""
_STRETCHES = 2
"""Stretches of each topic partition in memory beside its last runs."""
MOST_TOPICS = 1000
"""With more topics, the oldest are dropped."""

_shared: WeakValueDictionary[tuple, "LedgerIndex"] = WeakValueDictionary()
_shared_lock = forks.module_lock()


class LedgerIndex:
    """The runs of topics that a process's clients use; safe for threads."""

    def __init__(self, layout: Layout):
        self.layout = layout
        self._path = layout.broker_table(LEDGERS.name)
        self._log = TableLog(self._path)
        self._lock = threading.Lock()
        self._version: int | None = None
        self._topics: dict[str, dict[int, PartitionLedgers]] = {}
        self._foreign: dict[str, set[str]] = {}
        self._stretches: dict[tuple[str, int], deque[PartitionLedgers]] = {}
        self._by_bundle = {layout.bundle: self}
        self._users = 0
        self._few: tuple[int, pa.Table] | None = None

    def of(self, topic: Topic) -> "LedgerIndex":
        """The index of the bundle that now has the topic."""
        layout = layout_of(self.layout, topic.name)
        found = self._by_bundle.get(layout.bundle)
        if found is None:
            with self._lock:
                found = self._by_bundle.setdefault(layout.bundle, LedgerIndex(layout))
                found._by_bundle = self._by_bundle
        return found

    def forget(self) -> None:
        """End one user's share; the last frees the memory."""
        with _shared_lock:
            self._users -= 1
            if self._users > 0:
                return
        for index in list(self._by_bundle.values()):
            with index._lock:
                index._version = index._few = None
                for topics in (index._topics, index._foreign, index._stretches):
                    topics.clear()

    def runs(self, topic_id: str, partition: int, first: int, last: int) -> Iterator[Run]:
        """Runs cut to positions *first*..*last*, in order; :class:`CorruptState` if one is not numbered."""
        with self._lock:
            found = list(self._numbered(topic_id, partition, first, last).parts(first, last))
        yield from found

    def spans_of(
        self, topic_id: str, partition: int, spans: Sequence[tuple[int, int]]
    ) -> list[tuple[Run, list[tuple[int, int]]]]:
        """Whole runs of the ordered, disjoint *spans* (first, last), each with its parts of them.

        :class:`CorruptState` if a position is not numbered.
        """
        found: list[tuple[Run, list[tuple[int, int]]]] = []
        with self._lock:
            for together in _near_each_other(spans):
                first, last = together[0][0], together[-1][1]
                for run, parts in self._numbered(topic_id, partition, first, last).spans_of(together):
                    if found and found[-1][0] == run:
                        found[-1][1].extend(parts)
                    else:
                        found.append((run, parts))
        return found

    def foreign_files(self, topic_id: str) -> set[str]:
        """Files of the topic with rows that are no publish."""
        with self._lock:
            self._partition(topic_id, -1)
            self._refresh()
            return set(self._foreign.get(topic_id, ()))

    def find(self, topic_id: str, partition: int, ledger_id: int, entry_id: int) -> tuple[int, int] | None:
        """(position, batch size) of an entry; None if not numbered here."""
        with self._lock:
            for is_refreshed in (False, True):
                run = self._partition(topic_id, partition).run_of_entry(ledger_id, entry_id)
                if run is not None:
                    return entry_id + run.to_position, run.batch_size
                if not is_refreshed:
                    self._refresh()
        return None

    def next_position(self, topic_id: str, partition: int, ledger_id: int, entry_id: int) -> int:
        """Position of the first numbered entry above the given one; else the end."""
        with self._lock:
            self._refresh()
            known = self._partition(topic_id, partition)
            index = known.index_of_entry(ledger_id, entry_id) + 1
            return known[index].first_position if index < len(known) else known.end_position

    def chunks_from(self, topic_id: str, partition: int, ledger_id: int) -> int:
        """The first publish commit needed to assemble the chunks of *ledger_id*; 1 if unknown."""
        with self._lock:
            self._refresh()
            known = self._partition(topic_id, partition)
            earlier = [run for run in known.chunk_runs(0) if run.ledger_id <= ledger_id]
            if not earlier:
                return min(ledger_id, known.last_ledger_id + 1)
            if earlier[-1].chunks_from is None:
                return 1
            return known[known.index_of(earlier[-1].chunks_from)].ledger_id

    def last_chunk_position(self, topic_id: str, partition: int) -> int:
        """The last position that may be a chunk; -1 without chunks."""
        with self._lock:
            self._refresh()
            return self._partition(topic_id, partition).last_chunk_position

    def end(self, topic_id: str, partition: int) -> int:
        with self._lock:
            self._refresh()
            return self._partition(topic_id, partition).end_position

    def last_ledger_id(self, topic_id: str, partition: int) -> int:
        """The last publish commit with numbered entries in the partition, -1 for none."""
        with self._lock:
            self._refresh()
            return self._partition(topic_id, partition).last_ledger_id

    def _numbered(self, topic_id: str, partition: int, first: int, last: int) -> PartitionLedgers:
        known = self._partition(topic_id, partition, until=last)
        if last >= known.end_position:
            raise CorruptState(
                f"{str(self._path)!r}: position {last} of topic {topic_id}, partition {partition} was "
                f"delivered but has no ledger; {DOCTOR}"
            )
        return known if first >= known.begins_at else self._stretch(topic_id, partition, first, last)

    def _stretch(self, topic_id: str, partition: int, first: int, last: int) -> PartitionLedgers:
        kept = self._stretches.setdefault((topic_id, partition), deque())
        for found in kept:
            if found.begins_at <= first and last < found.end_position:
                return found
        while len(kept) >= _STRETCHES:
            kept.popleft()
        give_memory_back()
        found = runs_from(self._path, topic_id, partition, first, max(last + 1, first + STRETCH))
        if not found.begins_at <= first or last >= found.end_position:
            raise CorruptState(f"{str(self._path)!r}: some of positions {first} to {last} are missing: {DOCTOR}")
        kept.append(found)
        give_memory_back()
        return found

    def _partition(self, topic_id: str, partition: int, until: int = -1) -> PartitionLedgers:
        partitions = self._topics.get(topic_id)
        if partitions is None:
            partitions = self._load(topic_id)
        known = partitions.setdefault(partition, PartitionLedgers())
        if until >= known.end_position:
            self._refresh()
        return known

    def _load(self, topic_id: str) -> dict[int, PartitionLedgers]:
        self._refresh()
        version = self._log.latest() if self._version is None else self._version
        partitions: dict[int, PartitionLedgers] = {}
        if version > 0:
            rows = self._of_few(version)
            if rows is None:
                opened = open_table(self._path, version)
                partitions = last_runs(opened, topic_id, STRETCH)
                give_memory_back()
                wanted = [term("topic_id", "==", topic_id), term("first_position", "==", NO_POSITION)]
                rows = stored_rows(opened, _COLUMNS, wanted)
            self._append(topic_id, partitions, rows.filter(pc.equal(rows["topic_id"], topic_id)))
        self._version = version
        while len(self._topics) >= MOST_TOPICS:
            oldest = next(iter(self._topics))
            del self._topics[oldest]
            self._foreign.pop(oldest, None)
            for key in [key for key in self._stretches if key[0] == oldest]:
                del self._stretches[key]
        self._topics[topic_id] = partitions
        return partitions

    def _of_few(self, version: int) -> pa.Table | None:
        """All rows of a small table, kept for later; None for a large one."""
        rows = None
        if self._few is not None:
            known, rows = self._few
            try:
                with reading(self._path):
                    found = [
                        read_added(self._path, each, LEDGERS.schema, _COLUMNS)
                        for each in self._log.commits(known, version)
                    ]
                rows = pa.concat_tables([rows, *found]).combine_chunks()
            except (LogShortened, FileNotFoundError):
                rows = None
        if rows is None:
            opened = open_table(self._path, version)
            if (pc.sum(pa.table(opened.get_add_actions())["num_records"]).as_py() or 0) <= 2 * STRETCH:
                rows = stored_rows(opened, _COLUMNS)
        is_few = rows is not None and rows.num_rows <= 2 * STRETCH
        self._few = (version, rows) if is_few else None
        return rows if is_few else None

    def _refresh(self) -> None:
        if self._version is None:
            return
        try:
            for commit in self._log.commits(after=self._version):
                if commit.may_concern(self._topics):
                    if commit.reader_rows is not None:
                        ours = (row for row in commit.reader_rows if row.get("topic_id") in self._topics)
                        self._take_in(rows_from(ours, _SCHEMA))
                    else:
                        with reading(self._path):
                            rows = read_added(self._path, commit, LEDGERS.schema, _COLUMNS)
                        self._take_in(rows)
                self._version = commit.version
        except (LogShortened, FileNotFoundError):  # commits or their files were removed meanwhile
            table = open_table(self._path)
            wanted = [term("topic_id", "in", list(self._topics))]
            self._take_in(stored_rows(table, _COLUMNS, wanted))
            self._version = table.version()

    def _take_in(self, rows: pa.Table | list[dict]) -> None:
        if not isinstance(rows, list):
            for topic_id in pc.unique(rows.column("topic_id")).to_pylist():
                if topic_id in self._topics:
                    of_topic = rows.filter(pc.equal(rows.column("topic_id"), topic_id))
                    self._append(topic_id, self._topics[topic_id], of_topic)
            return
        for row in sorted(rows, key=itemgetter("first_position")):
            topic_id, partition = row["topic_id"], row["partition"]
            if topic_id not in self._topics:
                continue
            if row["first_position"] > NO_POSITION:
                known = self._topics[topic_id].setdefault(partition, PartitionLedgers())
                known.add(Run._make(row[name] for name in Run._fields))
                _drop_early(known, partial(stored_runs, self._path, topic_id, partition))
            elif row["path"] is not None:
                self._foreign.setdefault(topic_id, set()).add(row["path"])

    def _append(self, topic_id: str, partitions: dict[int, PartitionLedgers], rows: pa.Table) -> None:
        for _, partition, runs in by_partition(rows):
            known = partitions.setdefault(partition, PartitionLedgers())
            known.extend(runs)
            _drop_early(known, partial(stored_runs, self._path, topic_id, partition))
        notes = rows.filter(pc.and_(pc.equal(rows["first_position"], NO_POSITION), pc.is_valid(rows["path"])))
        self._foreign.setdefault(topic_id, set()).update(notes["path"].to_pylist())


def _drop_early(known: PartitionLedgers, read: Callable[[int], pa.Table]) -> None:
    if known.in_memory > 3 * STRETCH:
        known.drop_before(known[len(known) - STRETCH].first_position, read)


def shared_index(layout: Layout) -> LedgerIndex:
    """The process's index for a root; each user calls :meth:`~LedgerIndex.forget` in the end."""
    path = layout.broker_table(LEDGERS.name)
    with _shared_lock:
        key = forks.generation, str(path), TableLog(path).life()
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = LedgerIndex(layout)
        found._users += 1
        return found


def _near_each_other(spans: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    together: list[tuple[int, int]] = []
    for span in spans:
        if together and span[1] >= together[0][0] + STRETCH:
            yield together
            together = []
        together.append(span)
    if together:
        yield together
