"""Which chunks of a topic partition make up which messages, as far as its entries are numbered; read when needed."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded, inside
from pulsar_spark.protocol.entries.entry_codes import PART
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.entries.entry_ranges import known_ranges
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_runs import ChunkRuns, chunk_runs_of
from pulsar_spark.storage.chunks.judged_chunks import STILL_OPEN, JudgedChunks
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic


class OpenGroups(NamedTuple):
    """First position, last position so far and first publish time (microseconds) of incomplete messages."""

    firsts: np.ndarray
    lasts: np.ndarray
    since: np.ndarray


class ChunkGroups(JudgedChunks):
    """What brokers and readers ask of the groups of one topic partition."""

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


def parts_ahead(entries: EntryMap, read_position: int, chunks: ChunkGroups, end: int) -> int:
    """How many chunks before *end* that a cursor has not read complete no message."""
    firsts, lasts = as_array(chunks.parts(read_position, end - 1))
    done = ((range_.first, range_.last) for range_ in known_ranges(entries) if range_.status in (ACKNOWLEDGED, PART))
    return int(np.count_nonzero(~inside(expanded(firsts, lasts), done)))


def chunks_of(layout: Layout, topic: Topic, partition: int, runs: Iterable[Run] | None = None) -> ChunkGroups:
    """The chunk groups of a topic partition, as numbered now, for questions about *runs* (None: all)."""
    has_chunks = runs is None or any(run.may_have_chunks for run in runs)
    return ChunkGroups(topic.path, chunk_runs_of(layout, topic.topic_id, partition) if has_chunks else ChunkRuns())
