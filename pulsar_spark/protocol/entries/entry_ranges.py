"""A map of entries as ranges, and ranges put into a map."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, DEAD, PENDING, Range
from pulsar_spark.protocol.acknowledgement.packed_ranges import PackedRanges, joined, used_numbers
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded
from pulsar_spark.protocol.acknowledgement.positions import ranges_of as spans_of
from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, FIXED, UNREAD_CODE, EntryCodes, EntryState
from pulsar_spark.protocol.entries.entry_map import UNCHANGED, Change, EntryMap, states_in

_SHORT = 64
"""Ranges of up to so many entries are put position by position, all of them at once."""
_FEW_CODES = 8
_LOOKED_AT = 1 << 12
_DENSE = 16
"""A window of codes is quicker than single positions if at least one position in so many of it changes."""
MOST_ALIASES = 1000
"""The most codes, beside ACKNOWLEDGED_CODE, that may mean acknowledged."""
MOST_STRETCHES = 16
"""Changed entries of one state in fewer stretches are a range each; in more, one range names all their positions."""


def state_of(range_: Range) -> EntryState:
    """The state that a range gives its entries; dead ones are acknowledged."""
    is_done = range_.status in (ACKNOWLEDGED, DEAD)
    return FIXED[ACKNOWLEDGED_CODE] if is_done else EntryState(*range_[2:-1])


def known_ranges(entries: EntryMap, first: int = 0, last: int | None = None) -> PackedRanges:
    """The states of the entries *first*..*last* above mark-delete, without unread ones, as ranges by position.

    >>> entries = EntryMap()
    >>> put_ranges(entries, [Range(1, 3, "pending", "c", 1, 0, batch_size=1), Range(5, 5, "acknowledged")])
    >>> [range_[:4] for range_ in known_ranges(entries)]
    [(1, 3, 'pending', 'c'), (5, 5, 'acknowledged', None)]
    """
    first, last = max(first, entries.mark_delete + 1), entries.end - 1 if last is None else min(last, entries.end - 1)
    firsts, lasts, codes = entries.runs(first, last)
    is_known = codes != UNREAD_CODE
    used, which = used_numbers(codes[is_known], len(entries.codes))
    tails = [(*entries.codes.state(code), None) for code in used.tolist()]
    return PackedRanges(np.stack([firsts[is_known], lasts[is_known]]), which, tails)


class ScatteredRange(NamedTuple):
    """Entries at *positions* that have the state of *range_*."""

    range_: Range
    positions: np.ndarray


def put_scattered(entries: EntryMap, listed: Sequence[ScatteredRange]) -> None:
    """Put *listed* ranges, which share no entry, into the map."""
    scattered: list[tuple[np.ndarray, np.ndarray | int]] = []
    for range_, positions in listed:
        in_order = positions if (positions[1:] > positions[:-1]).all() else np.sort(positions)
        above = in_order[np.searchsorted(in_order, entries.mark_delete, "right") :]
        scattered.append((above, entries.codes.code(state_of(range_))))
    set_all(entries, scattered)


def set_all(entries: EntryMap, scattered: list[tuple[np.ndarray, np.ndarray | int]]) -> None:
    """Give the entries at ascending positions their codes, through one window if they lie close together."""
    scattered = [(positions, codes) for positions, codes in scattered if len(positions)]
    if len(scattered) > 1:
        first, last = min(int(at[0]) for at, _ in scattered), max(int(at[-1]) for at, _ in scattered)
        if last - first < _DENSE * sum(len(at) for at, _ in scattered):
            window = np.full(last + 1 - first, UNCHANGED, np.int32)
            for positions, codes in scattered:
                window[positions - first] = codes
            entries.set_window(first, window)
            return
    for positions, codes in scattered:
        entries.set_at(positions, codes)


def acknowledge_all(codes: EntryCodes, code: int, first: int, last: int) -> Range:
    """Acknowledge all entries of a code, which are pending and lie in *first*..*last*, without touching any of them.
    Returns a range that says so: acknowledged, with the consumer and the round of their delivery."""
    state = codes.state(code)
    codes.recode(code, FIXED[ACKNOWLEDGED_CODE])
    return Range(first, last, ACKNOWLEDGED, state.consumer_id, state.delivery_round)


def join_acknowledged(entries: EntryMap) -> None:
    """Give all acknowledged entries ACKNOWLEDGED_CODE, if many other codes came to mean acknowledged."""
    others = [code for code in entries.codes.acknowledged if code != ACKNOWLEDGED_CODE]
    if len(others) > MOST_ALIASES:
        entries.replace(others, 0, entries.end - 1, ACKNOWLEDGED_CODE)
        entries.take_changes()
        entries.codes.free(entries.counts)


def _acknowledge_delivery(entries: EntryMap, delivery: Range) -> None:
    """Put a range that :func:`acknowledge_all` returned into the map."""
    entries.take_changes()
    for code, state, count in list(states_in(entries)):
        if (state.status, *state[1:3]) == (PENDING, *delivery[3:5]):
            if entries.count([code], *delivery[:2]) == count:
                entries.codes.recode(code, FIXED[ACKNOWLEDGED_CODE])
            else:
                entries.replace([code], *delivery[:2], ACKNOWLEDGED_CODE)


def put_ranges(entries: EntryMap, ranges: Sequence[Range]) -> None:
    """Put *ranges*, which share no entry, into the map."""
    packed = joined([ranges]).in_order()
    if not len(packed):
        return
    of_deliveries = [tail[0] == ACKNOWLEDGED and tail[1] is not None for tail in packed.tails]
    if any(of_deliveries):
        is_delivery = np.array(of_deliveries)[packed.which]
        for each in packed.where(is_delivery):
            _acknowledge_delivery(entries, each)
        put_ranges(entries, list(packed.where(~is_delivery)))
        return
    tails = [Range(0, 0, *tail) for tail in packed.tails]
    codes = np.array([entries.codes.code(state_of(tail)) for tail in tails], np.int64)[packed.which]
    firsts, lasts = packed.ends
    is_short = lasts - firsts < _SHORT
    for first, last, code in zip(firsts[~is_short].tolist(), lasts[~is_short].tolist(), codes[~is_short].tolist()):
        entries.set_span(first, last, code)
    firsts, lasts, codes = firsts[is_short], lasts[is_short], codes[is_short]
    positions = expanded(firsts, lasts)
    is_above = positions > entries.mark_delete
    entries.set_at(positions[is_above], np.repeat(codes, lasts - firsts + 1)[is_above])


class ChangedRanges(NamedTuple):
    """Ranges of entries whose states changed, by position. A range with ``entries`` means only so many of the entries
    between its ends; *positions* has theirs, by the range's first position."""

    ranges: list[Range]
    positions: dict[int, np.ndarray]


def changed_ranges(
    changes: Sequence[Change], codes: EntryCodes, mark_delete: int, dealt: Sequence[tuple[int, np.ndarray]] = ()
) -> ChangedRanges:
    """The ranges that *changes* make above *mark_delete*: one for each stretch of a state, or one for all its entries
    if they lie scattered. Ranges of the codes in *dealt* name positions in the order in which entries were dealt.

    >>> entries = EntryMap()
    >>> put_ranges(entries, [Range(at, at, "pending", "c", 1, batch_size=1) for at in range(0, 40, 2)])
    >>> ranges, positions = changed_ranges(entries.take_changes(), entries.codes, -1)
    >>> [(range_.first, range_.last, range_.entries) for range_ in ranges], positions[0][:3].tolist()
    ([(0, 38, 20)], [0, 2, 4])
    """
    if dealt:
        changes = list(_without(changes, np.sort(np.concatenate([at for _, at in dealt]))))
    spans = [(each.first, each.last, int(each.codes[0])) for each in changes if each.is_uniform]
    scattered, positions = [each for each in changes if not each.is_uniform], {}
    listed: list[Range] = []
    if scattered:
        for code, of_code in by_code(*_joined(scattered)):
            if _are_few(of_code):
                spans += ((*span, code) for span in spans_of(of_code))
                continue
            of_code = of_code[np.searchsorted(of_code, mark_delete, "right") :]
            if len(of_code):
                first, last = int(of_code[0]), int(of_code[-1])
                listed.append(Range(first, last, *codes.state(code), entries=len(of_code)))
                positions[first] = of_code
    for code, at in dealt:
        first, last = int(at.min()), int(at.max())
        listed.append(Range(first, last, *codes.state(code), entries=len(at)))
        positions[first] = at
    return ChangedRanges([*_ranges_of_spans(sorted(spans), codes, mark_delete), *listed], positions)


def _joined(changes: Sequence[Change]) -> tuple[np.ndarray, np.ndarray]:
    """The codes that *changes* give to entries, and the positions of these."""
    firsts, lasts = as_array((each.first, each.last) for each in changes)
    codes, is_one = np.concatenate([each.codes for each in changes]), (firsts[1:] == lasts[:-1] + 1).all()
    at = np.arange(firsts[0], lasts[-1] + 1) if is_one else expanded(firsts, lasts)
    is_changed = codes != UNCHANGED
    return (codes, at) if is_changed.all() else (codes[is_changed], at[is_changed])


def _are_few(positions: np.ndarray) -> bool:
    """Do the positions form few stretches? Usually the first ones show that they do not."""
    parts = (positions[:_LOOKED_AT], positions)
    return all(np.count_nonzero(part[1:] != part[:-1] + 1) < MOST_STRETCHES for part in parts)


def _without(changes: Iterable[Change], positions: np.ndarray) -> Iterator[Change]:
    """*changes* without the entries at ascending *positions*."""
    for each in changes:
        begin, end = np.searchsorted(positions, (each.first, each.last + 1)).tolist()
        if begin == end:
            yield each
        elif end - begin < each.entries:
            codes = np.full(each.entries, each.codes[0]) if each.is_uniform else each.codes.copy()
            codes[positions[begin:end] - each.first] = UNCHANGED
            yield Change(each.first, each.entries, codes)


def by_code(codes: np.ndarray, positions: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each of *codes* with its *positions*, which ascend."""
    if not len(codes):
        return
    counts = np.bincount(codes)
    used, first, are_adjacent = np.flatnonzero(counts), positions[0], positions[-1] - positions[0] == len(positions) - 1
    if len(used) == 1:
        yield int(used[0]), positions
        return
    if len(used) <= _FEW_CODES:
        for code in used.tolist():
            at = np.flatnonzero(codes == code)
            yield code, at + first if are_adjacent else positions[at]
        return
    order = np.argsort(codes.astype(np.uint16) if len(counts) <= 1 << 16 else codes, kind="stable")  # by digits
    begin = 0
    for code, count in zip(used.tolist(), counts[used].tolist()):
        at = order[begin : begin + count]
        yield code, at + first if are_adjacent else positions[at]
        begin += count


def _ranges_of_spans(spans: Sequence[tuple[int, int, int]], codes: EntryCodes, mark_delete: int) -> Iterator[Range]:
    """Spans (first, last, code), by position, as ranges; neighbours of one code are one."""
    before: tuple[int, int, int] | None = None
    for first, last, code in spans:
        if before and before[2] == code and before[1] + 1 == first:
            before = before[0], last, code
            continue
        if before and before[1] > mark_delete:
            yield Range(max(before[0], mark_delete + 1), before[1], *codes.state(before[2]))
        before = first, last, code
    if before and before[1] > mark_delete:
        yield Range(max(before[0], mark_delete + 1), before[1], *codes.state(before[2]))


def states_of(entries: EntryMap) -> Iterator[Range]:
    """The states of entries above mark-delete, without unread ones, each as a range of so many ``entries``.

    >>> entries = EntryMap()
    >>> put_ranges(entries, [Range(1, 3, "acknowledged"), Range(5, 5, "acknowledged")])
    >>> pass_to(entries, 1)
    >>> [(state.status, state.entries) for state in states_of(entries)]
    [('acknowledged', 1)]
    """
    for code, state, count in states_in(entries):
        if code != UNREAD_CODE:
            yield Range(0, 0, *state, entries=count)


def pass_to(entries: EntryMap, mark_delete: int) -> None:
    """Acknowledge all entries up to *mark_delete*, without noting a change."""
    entries.set_span(entries.mark_delete + 1, mark_delete, ACKNOWLEDGED_CODE)
    entries.take_changes()
    entries.codes.free(entries.counts)
