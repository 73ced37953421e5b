"""Which chunks of a topic partition make up which messages, as far as its entries are numbered; read when needed."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.positions import as_array, ranges_of
from pulsar_spark.protocol.chunks.chunking import Open, Verdict, judged
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_rows import Chunks, read_published_chunks
from pulsar_spark.storage.chunks.chunk_runs import ChunkRuns, chunk_runs_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.packed_columns import Columns
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.topics import Topic

MOST_READ = 1 << 18

MOST_RUNS = 1 << 12

FORGET_FROM = 10_000
"""Old messages and stretches of chunks are forgotten from this number of them on."""

STILL_OPEN = (1 << 62) - 1
"""End position of a group that is still open."""


class OpenGroups(NamedTuple):
    """First position, last position so far and first publish time (microseconds) of incomplete messages."""

    firsts: np.ndarray
    lasts: np.ndarray
    since: np.ndarray


class ChunkGroups:
    """The chunk groups of the topic partition of *ledgers* in *table*; entries before *first* are trimmed."""

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

    # Queries

    @property
    def changes(self) -> int:
        """A counter that grows whenever the open groups change."""
        self.need(self._ledgers.end_position)
        return self._changes

    def units(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """First and last positions of the complete messages that end at *first*..*last*, in order."""
        self.need(first)
        lasts = self._units["last"]
        here = slice(np.searchsorted(lasts, first), np.searchsorted(lasts, last, "right"))
        return self._units["first"][here], lasts[here]

    def parts(self, first: int, last: int) -> list[tuple[int, int]]:
        """The stretches of *first*..*last* whose chunks complete no message."""
        self.need(first)
        firsts, lasts = self._parts["first"], self._parts["last"]
        here = slice(np.searchsorted(lasts, first), np.searchsorted(firsts, last, "right"))
        return list(zip(np.maximum(firsts[here], first).tolist(), np.minimum(lasts[here], last).tolist()))

    def are_parts(self, positions: np.ndarray) -> np.ndarray:
        """Which of the ascending *positions* hold chunks that complete no message."""
        if not len(positions) or positions[0] > self._ledgers.last_chunk_position:
            return np.zeros(len(positions), bool)
        self.need(int(positions[0]))
        at = np.searchsorted(self._parts["last"], positions)
        return np.append(self._parts["first"], STILL_OPEN)[at] <= positions

    def open(self) -> OpenGroups:
        """The messages that may still be completed, by first chunk; none with a deleted chunk."""
        self.need(self._ledgers.end_position)
        is_open = (self._attempts["end"] == STILL_OPEN) & ~self._attempts["is_gone"]
        return OpenGroups(*(self._attempts[name][is_open] for name in ("first", "last", "since")))

    def between(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Begins and ends of groups without deleted chunks that overlap *first*..*last*; ``STILL_OPEN`` if open."""
        self.need(first)
        firsts, ends = self._attempts["first"], self._attempts["end"]
        until = np.searchsorted(firsts, last, "right")
        here = np.flatnonzero((ends[:until] >= first) & ~self._attempts["is_gone"][:until])
        return firsts[here], ends[here]

    def begins(self, positions: np.ndarray) -> np.ndarray:
        """Where the group of each chunk at ascending *positions* begins; -1 for a chunk of none."""
        if not len(positions):
            return positions
        self.need(int(positions[0]))
        at = np.searchsorted(self._members["position"], positions)
        is_member = np.append(self._members["position"], -1)[at] == positions
        return np.where(is_member, np.append(self._members["first"], -1)[at], -1)

    def members(self, firsts: np.ndarray, before: int) -> np.ndarray:
        """The ascending positions below *before* of all chunks of the groups that begin at *firsts*."""
        positions = self._members["position"]
        return positions[(positions < before) & np.isin(self._members["first"], firsts)]

    def ends(self, firsts: np.ndarray) -> np.ndarray:
        """Where the messages that begin at *firsts* are complete; -1 for those that are not."""
        at = np.searchsorted(self._attempts["first"], firsts)
        is_known = np.append(self._attempts["first"], -1)[at] == firsts
        ends = np.where(is_known, np.append(self._attempts["end"], -1)[at], -1)
        unit = np.searchsorted(self._units["last"], ends)
        is_complete = np.append(self._units["last"], -1)[unit] == ends
        return np.where(is_complete & (np.append(self._units["first"], -1)[unit] == firsts), ends, -1)

    # Reading

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


def chunks_of(layout: Layout, topic: Topic, partition: int, runs: Iterable[Run] | None = None) -> ChunkGroups:
    """The chunk groups of a topic partition, as numbered now, for questions about *runs* (None: all)."""
    has_chunks = runs is None or any(run.may_have_chunks for run in runs)
    return ChunkGroups(topic.path, chunk_runs_of(layout, topic.topic_id, partition) if has_chunks else ChunkRuns())
