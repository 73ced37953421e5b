"""Chunked messages that exceed a consumer's limits, or are acknowledged incomplete (protocol.chunks.chunk_limits).

Limits apply as a read passes, by position, and again to whatever is read again. A consumer that asks for redelivery of
everything gets kept-back messages too.
"""

from collections.abc import Callable, Iterable

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.chunks.chunked import Chunked
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import delayed_at, honours_delays
from pulsar_spark.broker.delays.waiting import waits_since
from pulsar_spark.broker.requests.drafts import CursorChanges, RoundDraft
from pulsar_spark.broker.round.isolation import isolated, of_cursor
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.protocol.acknowledgement.positions import as_array, distinct, inside
from pulsar_spark.protocol.chunks.chunk_limits import Eviction, Group, begun_too_early, evictions
from pulsar_spark.protocol.entries.entry_codes import EntryState
from pulsar_spark.storage.chunks.judged_chunks import STILL_OPEN


def take_numbered(bundle: Bundle, draft: RoundDraft) -> None:
    """Handle new, deleted or rewritten chunks: completed messages are acknowledged if released, or pending where they
    were kept back."""
    for cursor in bundle.cursors_at_work():
        chunked = cursor.chunked
        if chunked is not None and chunked.has_news:
            with isolated(of_cursor(cursor)):
                _take_numbered(bundle, draft, cursor, chunked)


def _take_numbered(bundle: Bundle, draft: RoundDraft, cursor: Cursor, chunked: Chunked) -> None:
    if chunked.released or chunked.kept_back:
        firsts, lasts = chunked.groups.units(chunked.seen, chunked.numbered - 1)
        expire_units(draft.changes_of(cursor), lasts[chunked.are_released(firsts)])
        for consumer_id, kept in chunked.kept_back.items():
            units = lasts[inside(firsts, kept)]
            waits = go_by_deliver_time(bundle, cursor, units, draft.wall)
            keep_pending(draft.changes_of(cursor), consumer_id, units[~waits])
    chunked.take_news()
    # Parts of messages that began anew, broke or were deleted are acknowledged, even without requests for the cursor.
    if len(chunked.unneeded_parts()):
        draft.changes_of(cursor).is_changed = True


def expire_incomplete(bundle: Bundle, draft: RoundDraft) -> None:
    for cursor in bundle.cursors_at_work():
        chunked = cursor.chunked
        if chunked is None or not cursor.consumers:
            continue
        with isolated(of_cursor(cursor)):
            due = chunked.next_expiry()
            if due is not None and due <= draft.wall:
                opened = chunked.groups.open()
                chunked.release(opened.firsts[opened.since <= begun_too_early(chunked.limits.expire_ms, draft.wall)])
                draft.changes_of(cursor).is_changed = True


def release_until(changes: CursorChanges, last: int) -> None:
    """Release incomplete messages that end at or before *last*, because of time to live or a quota."""
    chunked = changes.cursor.chunked
    if chunked is None:
        return
    opened = chunked.groups.open()
    firsts = opened.firsts[opened.lasts <= last]
    if len(firsts):
        chunked.release(firsts)
        changes.is_changed = True


def expire_units(changes: CursorChanges, units: Iterable[int]) -> None:
    """Acknowledge the messages that end at *units* as expired."""
    for unit in map(int, units):
        if unit not in changes.acks and not changes.cursor.is_done(unit):
            changes.acks.add(unit, unit)
            changes.expired += 1


def keep_pending(changes: CursorChanges, consumer_id: str, units: np.ndarray) -> None:
    """Make messages that end at *units* pending at a consumer, without sending them."""
    entries = changes.cursor.entries
    units = np.sort(units[units > entries.mark_delete])
    if not len(units):
        return
    codes = entries.at(units)
    for code in distinct(codes).tolist():
        known = entries.codes.state(code)
        state = EntryState(
            PENDING, consumer_id, 0, known.redelivery_count or 0, None, known.ack_set, known.batch_size or 1
        )
        entries.set_at(units[codes == code], entries.codes.code(state))
    changes.rewrite()


def go_by_deliver_time(bundle: Bundle, cursor: Cursor, positions: np.ndarray, wall: int) -> np.ndarray:
    """Which entries at ascending *positions* go out, or will, by their deliver times."""
    if not honours_delays(bundle, cursor):
        return np.zeros(len(positions), bool)
    times = delayed_at(bundle.topics[cursor.topic], cursor.key.partition, positions)
    return times > waits_since(bundle, cursor, wall)


class ChunkWalk:
    """One cursor's read in one round, as far as it concerns chunks; *stay_away* says which entries no consumer can get
    in this round."""

    def __init__(
        self, bundle: Bundle, changes: CursorChanges, chunked: Chunked, stay_away: Callable[[np.ndarray], np.ndarray]
    ):
        self._bundle, self._changes, self._chunked = bundle, changes, chunked
        self._stay_away, self._limits, self._limiter = stay_away, chunked.limits, chunked.limiter
        self._found: tuple[tuple[int, int], list[Eviction]] | None = None

    def evicted(self, last: int) -> np.ndarray:
        """The ends of complete messages evicted by a read up to *last*."""
        firsts, ends = _columns(self._evictions(last))
        return ends[self._are_complete(firsts, ends)]

    def pass_by(self, last: int) -> None:
        found, chunked, changes = self._evictions(last), self._chunked, self._changes
        if found and self._limiter is not None:
            firsts, ends = _columns(found)
            left, units = firsts[ends == STILL_OPEN], np.sort(ends[self._are_complete(firsts, ends)])
            consumer_id = self._limiter.consumer_id
            if self._limits.auto_acks:
                expire_units(changes, units)
                chunked.release(left)
                changes.is_changed = True
            else:
                keep_pending(changes, consumer_id, units)
                chunked.keep_back(consumer_id, left)
                changes.changed_consumers.add(consumer_id)
                changes.is_changed = True
        chunked.walked = max(chunked.walked, last + 1)

    def _are_complete(self, firsts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Which groups are messages; one whose uuid began anew is not."""
        is_over = ends != STILL_OPEN
        if not is_over.any():
            return is_over
        begins, lasts = self._chunked.groups.units(int(ends[is_over].min()), int(ends[is_over].max()))
        at = np.searchsorted(lasts, ends)
        return (np.append(lasts, -1)[at] == ends) & (np.append(begins, -1)[at] == firsts)

    def _evictions(self, last: int) -> list[Eviction]:
        is_all_again = self._limiter is not None and self._limiter.consumer_id in self._changes.redelivered
        if not self._limits.most or last < self._chunked.walked or is_all_again:
            return []
        way = self._chunked.walked, last
        if self._found is None or self._found[0] != way:
            self._found = way, self._look(last)
        return self._found[1]

    def _look(self, last: int) -> list[Eviction]:
        chunked, most = self._chunked, self._limits.most
        firsts, ends = chunked.groups.between(chunked.walked, last)
        if not len(firsts):
            return []
        open_then = np.arange(1, len(firsts) + 1) - np.searchsorted(np.sort(ends), firsts, "right")
        if open_then.max() <= most:
            return []
        counts = ~self._are_exempt(firsts, ends)
        groups = map(Group, firsts[counts].tolist(), ends[counts].tolist())
        return evictions(groups, most=most, begin=chunked.walked)

    def _are_exempt(self, firsts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Which groups do not count for limits: released, kept back or over, or delivered by deliver time."""
        chunked, cursor = self._chunked, self._changes.cursor
        are_exempt = (ends == STILL_OPEN) & chunked.are_released(firsts)
        for kept in chunked.kept_back.values():
            are_exempt |= (ends == STILL_OPEN) & inside(firsts, kept)
        is_over = ends != STILL_OPEN
        is_known = np.zeros(len(ends), bool)
        is_known[is_over] = self._stay_away(ends[is_over])
        units = np.sort(ends[self._are_complete(firsts, ends) & ~is_known])
        by_deliver_time = units[go_by_deliver_time(self._bundle, cursor, units, self._bundle.now.wall)]
        is_known |= np.isin(ends, by_deliver_time)
        return are_exempt | (self._are_complete(firsts, ends) & is_known)


def _columns(found: list[Eviction]) -> tuple[np.ndarray, np.ndarray]:
    firsts, ends = as_array((each.evicted.first, each.evicted.end) for each in found)
    return firsts, ends
