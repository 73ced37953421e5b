"""Read runs from ``ledgers``: what a starting broker needs, with a summary of the rest, or chosen runs of a topic.

A run is a row of ``ledgers`` (see numbering). A broker needs the runs that at least one cursor has not passed."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.protocol.topics.numbering import NO_POSITION, Run
from pulsar_spark.storage.delta.scan import folder_of, open_table
from pulsar_spark.storage.delta.table_parts import Term, read_parts, term
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import by_partition, groups, runs_of, stored_rows
from pulsar_spark.storage.ledgers.packed_columns import numbers
from pulsar_spark.storage.ledgers.packed_runs import Past
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.ledgers.publish_ids import PublishIds
from pulsar_spark.storage.store.store import AnyPath, path_of
from pulsar_spark.table_specs import LEDGERS

ROWS_A_STEP = 1 << 16
"""At least so many rows are looked at in one go."""
_NUMBERS = ("first_position", "entries", "batch_size", "ledger_id", "has_chunks", "delayed_after")
Place = tuple[str, int]
"""A topic's id and one of its partitions."""


class NeededRuns:
    """Each topic partition's runs that reach its first needed position, and a summary of the earlier ones."""

    def __init__(self, path: AnyPath, first_needed: Callable[[str, int], int]):
        opened = open_table(path)
        self.version = opened.version()
        self.publish_ids: dict[str, PublishIds] = {}
        """By topic id."""
        self.past: dict[Place, Past] = {}
        self.rows: dict[Place, pa.Table] = {}
        """The runs that the past does not sum up."""
        self.delayed: dict[Place, pa.Table] = {}
        """All runs with delayed entries."""
        rows, delayed = defaultdict[Place, list](list), defaultdict[Place, list](list)
        earlier = defaultdict[Place, _EarlierRuns](_EarlierRuns)
        for some in _steps(opened, LEDGERS.schema.names):
            for topic_id, partition, runs in by_partition(some):
                place = topic_id, partition
                self.publish_ids.setdefault(topic_id, empty_publish_ids(path, topic_id)).add_stored(
                    runs["publish_id"].to_pylist()
                )
                is_past = pc.less_equal(pc.add(runs["first_position"], runs["entries"]), first_needed(*place))
                earlier[place].add(runs.filter(is_past))
                delayed[place].append(runs.filter(pc.is_valid(runs["delayed_after"])))
                rows[place].append(runs.filter(pc.invert(is_past)))
        for place, found in earlier.items():
            past = found.past()
            self.past[place] = past or Past()
            self.delayed[place] = pa.concat_tables(delayed[place])
            if past is None:  # runs are missing or double: PartitionLedgers, given all, reports or skips them
                self.rows[place] = stored_runs(path, *place)
            else:
                self.rows[place] = pa.concat_tables(rows[place])


def stored_runs(path: AnyPath, topic_id: str, partition: int, below: int = MAX_LONG, first: int = 0) -> pa.Table:
    """Rows of a topic partition's runs that begin before position *below* and reach position *first*."""
    return stored_rows(open_table(path), LEDGERS.schema.names, _between(topic_id, partition, first, below))


def runs_from(path: AnyPath, topic_id: str, partition: int, first: int = 0, below: int = MAX_LONG) -> PartitionLedgers:
    """The runs of :func:`stored_runs` as :class:`PartitionLedgers`, which know nothing of earlier ones."""
    rows = stored_runs(path, topic_id, partition, below, first)
    found = PartitionLedgers(Past(end_position=pc.min(rows["first_position"]).as_py() or 0))
    found.extend(rows)
    return found


def passed_paths(path: AnyPath, topic_id: str, firsts: Mapping[int, int], among: set[str]) -> set[str]:
    """Those of a topic's files *among* that nobody needs: all their runs end before the first needed position.

    *firsts* gives this position by partition; runs of other partitions do not count."""
    passed, needed = set[str](), set[str]()
    for partition, runs in _runs_of_topic(open_table(path), topic_id, ["path", "first_position", "entries"]):
        runs = runs.filter(pc.is_in(runs["path"], pa.array(among, pa.string())))
        is_passed = pc.less_equal(pc.add(runs["first_position"], runs["entries"]), firsts.get(partition, 0))
        if partition in firsts:
            passed.update(runs["path"].filter(is_passed).to_pylist())
            needed.update(runs["path"].filter(pc.invert(is_passed)).to_pylist())
    return passed - needed


def first_position_from(
    layout: Layout, topic_id: str, partition: int, ledger_id: int, published_since: datetime | None = None
) -> int | None:
    """The position of the first run of commit *ledger_id* or a later one, None without such a run. With
    *published_since*, only runs count that may have a message published then or later."""
    if ledger_id <= 1 and published_since is None:
        return 0
    wanted = [*_between(topic_id, partition, 0, MAX_LONG), term("ledger_id", ">=", ledger_id)]
    firsts = []
    columns = ["first_position", "max_publish_time"]
    for runs in _steps(open_table(layout.broker_table(LEDGERS.name)), columns, wanted, ROWS_A_STEP):
        if published_since is not None:  # a message's time is in whole milliseconds, the table's may be finer
            latest = runs["max_publish_time"]
            is_late = pc.greater_equal(latest, published_since - timedelta(milliseconds=1))
            runs = runs.filter(pc.or_kleene(pc.is_null(latest), is_late))
        firsts.append(pc.min(runs["first_position"]).as_py())
    return min((first for first in firsts if first is not None), default=None)


def delayed_runs(layout: Layout, topic_id: str, partition: int, first: int = 0, last: int = MAX_LONG - 1) -> list[Run]:
    """The runs of positions *first*..*last* that may have entries in the delay index, in order."""
    wanted = _between(topic_id, partition, first, last + 1)
    return _runs_with(layout, [*wanted, term("delayed_after", ">=", -MAX_LONG - 1)])  # any value, but not null


def runs_with_chunks(layout: Layout, topic_id: str, partition: int) -> list[Run]:
    """The runs that may have chunks; batches have none."""
    wanted = _between(topic_id, partition, 0, MAX_LONG)
    return _runs_with(layout, [*wanted, term("has_chunks", "==", True), term("batch_size", "==", 1)])


def _runs_with(layout: Layout, wanted: list[Term]) -> list[Run]:
    rows = stored_rows(open_table(layout.broker_table(LEDGERS.name)), LEDGERS.schema.names, wanted)
    return list({run.first_position: run for _, _, run in runs_of(rows)}.values())  # one may be stored twice


def _between(topic_id: str, partition: int, first: int, below: int) -> list[Term]:
    """What selects the runs that :func:`stored_runs` describes."""
    wanted = [term("topic_id", "==", topic_id), term("partition", "==", partition)]
    wanted += [term("first_position", ">", NO_POSITION), term("first_position", "<", below)]
    return wanted + ([term(("first_position", "entries"), ">", first)] if first > 0 else [])


def last_runs(opened: DeltaTable, topic_id: str, count: int) -> dict[int, PartitionLedgers]:
    """The last *count* runs of each of a topic's partitions, with a summary of the earlier ones. All runs, if there are
    at most twice as many or some are missing."""
    path, found = path_of(folder_of(opened)), dict[int, PartitionLedgers]()
    begins, earlier = _begins(opened, topic_id, count), defaultdict[int, _EarlierRuns](_EarlierRuns)
    for partition, runs in _runs_of_topic(opened, topic_id, _NUMBERS):
        earlier[partition].add(runs.filter(pc.less(runs["first_position"], begins[partition])))
    for partition, found_earlier in earlier.items():
        past, wanted = found_earlier.past(), _between(topic_id, partition, 0, MAX_LONG)
        if past is not None:
            wanted.append(term("first_position", ">=", begins[partition]))
        found[partition] = PartitionLedgers(past or Past(), partial(stored_runs, path, topic_id, partition))
        found[partition].extend(stored_rows(opened, LEDGERS.schema.names, wanted))
    return found


def _begins(opened: DeltaTable, topic_id: str, count: int) -> dict[int, int]:
    """The position at which each partition's last *count* runs begin; 0 if it has at most twice as many runs."""
    firsts = defaultdict[int, list](list)
    for partition, runs in _runs_of_topic(opened, topic_id, ["first_position"]):
        firsts[partition].append(numbers(runs["first_position"].combine_chunks()))
    begins = {}
    for partition, parts in firsts.items():
        known = np.concatenate(parts)
        begins[partition] = int(np.partition(known, -count)[-count]) if len(known) > 2 * count else 0
    return begins


def _runs_of_topic(opened: DeltaTable, topic_id: str, columns: Iterable[str]) -> Iterator[tuple[int, pa.Table]]:
    wanted = [term("topic_id", "==", topic_id), term("first_position", ">", NO_POSITION)]
    for some in _steps(opened, ["partition", *columns], wanted, ROWS_A_STEP):
        yield from groups(some, "partition")


def empty_publish_ids(path: AnyPath, topic_id: str) -> PublishIds:
    """Publish ids of a topic, to which none is added yet; they look ids up in the table at *path*."""

    def is_there(publish_id: str) -> bool:
        wanted = [term("topic_id", "==", topic_id), term("publish_id", "==", publish_id)]
        return stored_rows(open_table(path), ["publish_id"], wanted).num_rows > 0

    return PublishIds(is_there)


def _steps(
    opened: DeltaTable, columns: Iterable[str], wanted: Iterable[Term] = (), part_rows: int | None = None
) -> Iterator[pa.Table]:
    waiting, count = [], 0
    for rows in read_parts(opened, LEDGERS.schema, columns, wanted, part_rows):
        waiting.append(rows)
        count += rows.num_rows
        if count >= ROWS_A_STEP:
            yield pa.concat_tables(waiting)
            waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


class _EarlierRuns:
    """Runs of one topic partition that are not needed, added in any order and summed up."""

    def __init__(self):
        self._firsts, self._ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        self._messages = 0
        self._last = (-1, -1)
        """The first position and the ledger id of the last run."""
        self._last_chunk = self._last_delayed = -1

    def add(self, runs: pa.Table) -> None:
        if not runs.num_rows:
            return
        firsts, entries, batch_sizes, ledger_ids = (
            numbers(runs[name].combine_chunks()).astype(np.int64) for name in _NUMBERS[:4]
        )
        ends = firsts + entries
        self._firsts.append(firsts)
        self._ends.append(ends)
        self._messages += int((entries * batch_sizes).sum())
        last = int(firsts.argmax())
        self._last = max(self._last, (int(firsts[last]), int(ledger_ids[last])))
        has_chunks = pc.fill_null(runs["has_chunks"], False).to_numpy() & (batch_sizes == 1)
        is_delayed = pc.is_valid(runs["delayed_after"]).to_numpy()
        self._last_chunk = max(self._last_chunk, int(ends[has_chunks].max(initial=0)) - 1)
        self._last_delayed = max(self._last_delayed, int(ends[is_delayed].max(initial=0)) - 1)

    def past(self) -> Past | None:
        """The summary; None if runs are missing, from position 0 on, or stored twice."""
        firsts, ends = np.concatenate(self._firsts), np.concatenate(self._ends)
        if not len(firsts):
            return Past()
        firsts.sort(kind="stable")  # ten times as fast as other sorts, because files are mostly in order
        ends.sort(kind="stable")
        if firsts[0] != 0 or (firsts[1:] != ends[:-1]).any():  # some run does not begin where another one ends
            return None
        return Past(len(firsts), int(ends[-1]), self._last[1], self._messages, self._last_chunk, self._last_delayed)
