"""Incomplete chunked messages: which chunks exist, which are missing, and since when.

A message that began with its chunk 0 may be *open*, so that missing chunks may still come, or given up. Strays are
chunks that came while no message of their producer and uuid was open."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.acknowledgement.positions import distinct, ranges_of
from pulsar_spark.protocol.chunks.chunking import REASONS, Judged, Verdict, judged, none_open
from pulsar_spark.storage.chunks.chunk_rows import Chunks, read_chunks
from pulsar_spark.storage.chunks.chunk_runs import ChunkRuns, chunk_runs_of
from pulsar_spark.storage.entries.run_slices import read_slice
from pulsar_spark.storage.entries.topic_files import trimmed_ledgers
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.views.task_rows import topics_there
from pulsar_spark.views.view_specs import CHUNKS

_BEGUN_ANEW = "another chunk 0 began the message again"
_CLOSING = (Verdict.GAP, Verdict.DISAGREES, Verdict.MALFORMED)
_STRAYS = (Verdict.NO_FIRST, *_CLOSING)
_NAMES = ("producer_name", "uuid", "num_chunks_from_msg", "total_chunk_msg_size", "publish_time")
_BATCH = 10_000
"""Rows made at a time."""

Runs = PartitionLedgers | ChunkRuns


class Incomplete(NamedTuple):
    rows: np.ndarray
    is_open: bool
    reason: str


def read_incomplete(topic: Topic, partition: int, ledgers: Runs) -> Iterator[list[dict]]:
    """The incomplete messages of a topic partition as rows of the view, in batches, oldest first."""
    chunks, found = _judged(topic, partition, ledgers)
    incomplete = sorted([*_begun(chunks, found), *_strays(chunks, found)], key=lambda each: each.rows[0])
    for at in range(0, len(incomplete), _BATCH):
        yield _rows_of(topic, partition, ledgers, chunks, incomplete[at : at + _BATCH])


class Counted(NamedTuple):
    messages: int
    still_open: int
    chunks: int
    since: datetime | None


def count_incomplete(topic: Topic, partition: int, ledgers: Runs) -> Counted:
    chunks, found = _judged(topic, partition, ledgers)
    completed = found.openers[found.verdicts == Verdict.COMPLETES]
    begun = np.flatnonzero((found.verdicts <= Verdict.COMPLETES) & ~np.isin(found.openers, completed))
    strays = np.flatnonzero(np.isin(found.verdicts, _STRAYS))
    _, groups = np.unique(chunks.groups[strays], return_index=True)
    firsts = np.concatenate([distinct(found.openers[begun]), strays[groups]])
    times = _named(topic, ledgers, np.sort(chunks.positions[firsts]), ["publish_time"])["publish_time"]
    still_open = int((found.left.openers >= 0).sum())
    return Counted(len(firsts), still_open, len(begun) + len(strays), pc.min(times).as_py())


def _judged(topic: Topic, partition: int, ledgers: Runs) -> tuple[Chunks, Judged]:
    trimmed = trimmed_ledgers(topic.path, [partition])[partition]
    runs = (run for run in ledgers.chunk_runs(0) if run.ledger_id > trimmed)
    chunks = _together([read_chunks(topic.path, run) for run in runs])
    return chunks, judged(chunks.groups, chunks.chunk_ids, chunks.num_chunks, none_open(len(chunks.keys)))


def _named(topic: Topic, ledgers: Runs, positions: np.ndarray, columns: Sequence[str]) -> pa.Table:
    runs = [run.part(*part) for run, parts in ledgers.spans_of(ranges_of(positions)) for part in parts]
    return read_slice(topic.path, runs, columns)


def _together(read: list[Chunks]) -> Chunks:
    if not read:
        nothing = np.zeros(0, np.int64)
        return Chunks(nothing, np.zeros(0, np.uint64), *[nothing] * 4)
    keys, groups = np.unique(np.concatenate([each.keys[each.groups] for each in read]), return_inverse=True)
    columns = (np.concatenate([getattr(each, name) for each in read]) for name in Chunks._fields[3:])
    return Chunks(np.concatenate([each.positions for each in read]), keys, groups, *columns)


def _begun(chunks: Chunks, found: Judged) -> Iterator[Incomplete]:
    completed = set(found.openers[found.verdicts == Verdict.COMPLETES].tolist())
    still_open = set(found.left.openers.tolist())
    taken = np.flatnonzero(found.verdicts <= Verdict.COMPLETES)
    by_opener = taken[np.argsort(found.openers[taken], kind="stable")]
    borders = np.flatnonzero(np.diff(found.openers[by_opener])) + 1
    ends = _Ends(chunks, found)
    for rows in np.split(by_opener, borders) if len(by_opener) else ():
        opener = int(rows[0])
        if opener in still_open:
            yield Incomplete(rows, True, REASONS[Verdict.TAKEN])
        elif opener not in completed:
            yield Incomplete(rows, False, ends.reason(int(rows[-1])))


class _Ends:
    def __init__(self, chunks: Chunks, found: Judged):
        is_end = np.isin(found.verdicts, _CLOSING) | (found.openers == np.arange(len(found.openers)))
        ends = np.flatnonzero(is_end)
        self._ends = ends[np.argsort(chunks.groups[ends], kind="stable")]
        self._places = chunks.groups[self._ends] * len(chunks.groups) + self._ends
        self._groups, self._verdicts = chunks.groups, found.verdicts

    def reason(self, row: int) -> str:
        at = np.searchsorted(self._places, self._groups[row] * len(self._groups) + row, "right")
        verdict = Verdict(int(self._verdicts[self._ends[at]]))
        return REASONS[verdict] if verdict in _CLOSING else _BEGUN_ANEW


def _strays(chunks: Chunks, found: Judged) -> Iterator[Incomplete]:
    strays = np.flatnonzero(np.isin(found.verdicts, _STRAYS))
    by_group = strays[np.argsort(chunks.groups[strays], kind="stable")]
    borders = np.flatnonzero(np.diff(chunks.groups[by_group])) + 1
    for rows in np.split(by_group, borders) if len(by_group) else ():
        yield Incomplete(rows, False, REASONS[Verdict(int(found.verdicts[rows[0]]))])


def _rows_of(topic: Topic, partition: int, ledgers: Runs, chunks: Chunks, incomplete: list[Incomplete]) -> list[dict]:
    positions = distinct(np.array([chunks.positions[each.rows[0]] for each in incomplete], np.int64))
    named = {row["position"]: row for row in _named(topic, ledgers, positions, _NAMES).to_pylist()}
    rows = []
    for each in incomplete:
        first = int(chunks.positions[each.rows[0]])
        of, there = int(chunks.num_chunks[each.rows[0]]), distinct(chunks.chunk_ids[each.rows])
        rows.append(
            {
                "topic": str(topic.name),
                "partition": partition,
                "producer_name": named[first]["producer_name"],
                "uuid": named[first]["uuid"],
                "num_chunks_from_msg": named[first]["num_chunks_from_msg"],
                "total_chunk_msg_size": named[first]["total_chunk_msg_size"],
                "chunks": len(each.rows),
                "missing": _missing(there, of),
                "first": first,
                "last": int(chunks.positions[each.rows[-1]]),
                "since": named[first]["publish_time"],
                "is_open": each.is_open,
                "reason": each.reason,
            }
        )
    return rows


def _missing(there: np.ndarray, of: int) -> list[dict]:
    """The missing chunk ids in 0 to *of* - 1, as ranges, because *of* may be a huge lie.

    >>> _missing(np.array([0, 1, 4]), 7)
    [{'first': 2, 'last': 3}, {'first': 5, 'last': 6}]
    """
    known = np.concatenate(([-1], there[(there >= 0) & (there < of)], [max(of, 0)]))
    gaps = np.flatnonzero(np.diff(known) > 1)
    return [{"first": int(known[at]) + 1, "last": int(known[at + 1]) - 1} for at in gaps]


def all_incomplete(root: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for Spark tasks: from topic partitions of *root* (topic, topic_id, partition) to rows of the view
    ``chunks``; none for a deleted or recreated topic."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = Layout(root)
        for topic, row in topics_there(layout, batches):
            ledgers = chunk_runs_of(layout_of(layout, topic.name), topic.topic_id, row["partition"])
            for rows in read_incomplete(topic, row["partition"], ledgers):
                yield from CHUNKS.rows(rows).to_batches()

    return read
