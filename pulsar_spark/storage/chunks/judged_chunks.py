"""Read the chunks of a topic partition, and sort them into groups: a group is a chunked message, complete or not.

The topic alone determines this, so chunk rows are read when needed and nothing is stored.
"""

from collections.abc import Iterator

import numpy as np

from pulsar_spark.protocol.acknowledgement.positions import as_array, ranges_of
from pulsar_spark.protocol.chunks.chunking import Open, Verdict, judged
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_rows import Chunks, read_published_chunks
from pulsar_spark.storage.chunks.chunk_runs import ChunkRuns
from pulsar_spark.storage.ledgers.packed_columns import Columns
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.store.store import AnyPath

MOST_READ = 1 << 18

MOST_RUNS = 1 << 12

FORGET_FROM = 10_000
"""Old messages and stretches of chunks are forgotten from this number of them on."""

STILL_OPEN = (1 << 62) - 1
"""End position of a group that is still open."""


class JudgedChunks:
    """The chunks of the topic partition of *ledgers* in *table*, by group; entries before *first* are trimmed."""

    def __init__(self, table: AnyPath, ledgers: PartitionLedgers | ChunkRuns, first: int = 0):
        self._table, self._ledgers, self._first = table, ledgers, first
        self.begin = self.end = ledgers.end_position
        self._changes = self.rewritten = 0
        self._forget()

    def trim(self, first: int) -> None:
        self._first = first
        self._forget()

    def read_again(self) -> None:
        """Forget what was read, because rows were removed or rewritten."""
        self.rewritten += 1
        self._forget()

    def _forget(self) -> None:
        self._is_read, self._changes = False, self._changes + 1
        self._attempts = Columns(
            first=np.int64, end=np.int64, since=np.int64, last=np.int64, next=np.int32, of=np.int32, is_gone=np.bool_
        )
        """By chunk 0 of each group: end, first publish time, last chunk so far, next chunk id, chunks, and whether one
        is gone."""
        self._units = Columns(first=np.int64, last=np.int64)
        self._parts = Columns(first=np.int64, last=np.int64)
        self._members = Columns(position=np.int64, first=np.int64)
        """The chunks of groups, and where each one's group begins."""
        self._keys, self._of_key = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        """The groups that are open, by hash of producer and uuid, and their indexes among the attempts."""

    @property
    def last_position(self) -> int:
        """Position of the last chunk; -1 if there are none."""
        return self._ledgers.last_chunk_position

    def need(self, first: int) -> None:
        if first < self.begin or not self._is_read:
            self._forget()
            self._is_read, self.begin, self.end = True, first, self._ledgers.end_position
            run = next(self._ledgers.chunk_runs(min(first, self._ledgers.last_chunk_position)), None)
            if run is not None:
                self.begin = min(first, run.first_position)
                self.end = 0 if run.chunks_from is None else run.chunks_from
        for runs in self._unread():
            found, deleted = read_published_chunks(self._table, runs)
            if len(found.positions):
                self._judge(found, deleted)
            self.end = runs[-1].last_position + 1
        self.end = self._ledgers.end_position

    def chunks_from(self, run: Run) -> int:
        """``chunks_from`` of the next *run*: where the oldest open group begins, or else the run."""
        self.need(self._ledgers.end_position)
        opened = self._attempts["first"][self._attempts["end"] == STILL_OPEN]
        return min(run.first_position, int(opened[0])) if len(opened) else run.first_position

    @property
    def is_large(self) -> bool:
        return len(self._units) + len(self._parts) >= FORGET_FROM

    def forget_before(self, before: int) -> None:
        """Forget groups before that position if they are most of them."""
        gone = sum(int(np.searchsorted(of["last"], before)) for of in (self._units, self._parts))
        if before <= self.begin or not self._is_read or gone < (len(self._units) + len(self._parts)) // 2:
            return
        self._units.keep(self._units["last"] >= before)
        self._parts.keep(self._parts["last"] >= before)
        is_kept = self._attempts["end"] >= before
        self._of_key = (np.cumsum(is_kept) - 1)[self._of_key]
        self._attempts.keep(is_kept)
        self._members.keep(np.isin(self._members["first"], self._attempts["first"]))
        self.begin = before

    def _unread(self) -> Iterator[list[Run]]:
        begin, together, entries = max(self.end, self._first), list[Run](), 0
        for run in self._ledgers.chunk_runs(self.end):
            for first in range(max(run.first_position, begin), run.last_position + 1, MOST_READ):
                part = run.part(first, first + MOST_READ - 1)
                if together and (entries + part.entries > MOST_READ or len(together) == MOST_RUNS):
                    yield together
                    together, entries = [], 0
                together.append(part)
                entries += part.entries
        if together:
            yield together

    def _judge(self, found: Chunks, deleted: np.ndarray) -> None:
        self._changes += 1
        at = np.searchsorted(self._keys, found.keys)
        is_known = np.append(self._keys, 0)[at] == found.keys
        is_known &= at < len(self._keys)
        before = np.where(is_known, np.append(self._of_key, -1)[at], -1)
        known = before[is_known]
        count = len(found.keys)
        state = Open(np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, -1))
        state.next_chunks[is_known] = self._attempts["next"][known]
        state.num_chunks[is_known] = self._attempts["of"][known]
        verdicts, openers, left = judged(found.groups, found.chunk_ids, found.num_chunks, state)

        rows, begun = np.arange(len(found.positions)), len(self._attempts)
        is_opener = (verdicts <= Verdict.COMPLETES) & (openers == rows)
        self._attempts.append(
            first=found.positions[is_opener],
            end=np.full(is_opener.sum(), STILL_OPEN),
            since=found.times[is_opener],
            last=found.positions[is_opener],
            next=np.ones(is_opener.sum(), np.int32),
            of=found.num_chunks[is_opener],
            is_gone=np.zeros(is_opener.sum(), np.bool_),
        )
        number = begun + np.cumsum(is_opener) - 1
        attempt = np.where(openers >= 0, number[openers], before[found.groups])
        taken = verdicts <= Verdict.COMPLETES
        self._attempts["last"][attempt[taken]] = found.positions[taken]
        self._members.append(position=found.positions[taken], first=self._attempts["first"][attempt[taken]])
        self._attempts["next"][attempt[taken]] = found.chunk_ids[taken] + 1
        self._attempts["is_gone"][attempt[taken & np.isin(found.positions, deleted)]] = True
        self._end(found, verdicts, is_opener, attempt, before)
        self._complete(found, verdicts == Verdict.COMPLETES, attempt)
        now = np.where(left.openers >= 0, number[left.openers], before)
        self._keep_open(found.keys, at, is_known, left.next_chunks > 0, now)

    def _end(
        self, found: Chunks, verdicts: np.ndarray, is_opener: np.ndarray, attempt: np.ndarray, before: np.ndarray
    ) -> None:
        """Note the first position at which groups were discarded or begun anew."""
        order = np.lexsort((np.arange(len(verdicts)), found.groups))
        groups, opens = found.groups[order], is_opener[order]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        start = starts[np.searchsorted(starts, np.arange(len(order)), "right") - 1]
        opened = np.append(-1, np.maximum.accumulate(np.where(opens, np.arange(len(order)), -1))[:-1])
        of = np.where(opened >= start, attempt[order][opened], before[groups])
        ends = opens | np.isin(verdicts[order], (Verdict.GAP, Verdict.DISAGREES, Verdict.MALFORMED))
        ends &= of >= 0
        self._attempts["end"][of[ends][::-1]] = found.positions[order][ends][::-1]

    def _complete(self, found: Chunks, completes: np.ndarray, attempt: np.ndarray) -> None:
        lasts = found.positions[completes]
        self._attempts["end"][attempt[completes]] = lasts
        self._units.append(first=self._attempts["first"][attempt[completes]], last=lasts)
        firsts, lasts = as_array(ranges_of(found.positions[~completes]))
        if len(self._parts) and len(firsts) and self._parts["last"][-1] == firsts[0] - 1:
            self._parts["last"][-1] = lasts[0]
            firsts, lasts = firsts[1:], lasts[1:]
        self._parts.append(first=firsts, last=lasts)

    def _keep_open(
        self, keys: np.ndarray, at: np.ndarray, is_known: np.ndarray, is_open: np.ndarray, now: np.ndarray
    ) -> None:
        stays = is_known & is_open
        self._of_key[at[stays]] = now[stays]
        gone, new = at[is_known & ~is_open], ~is_known & is_open
        if new.any():
            self._of_key = np.insert(self._of_key, at[new], now[new])
            self._keys = np.insert(self._keys, at[new], keys[new])
            gone = gone + np.searchsorted(at[new], gone, "right")
        if len(gone):
            self._of_key, self._keys = np.delete(self._of_key, gone), np.delete(self._keys, gone)
