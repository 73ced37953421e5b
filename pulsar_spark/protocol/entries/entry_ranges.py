"""A map of entries as ranges, and ranges put into a map."""

from collections.abc import Iterator, Sequence

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, DEAD, Range
from pulsar_spark.protocol.acknowledgement.packed_ranges import PackedRanges, joined, used_numbers
from pulsar_spark.protocol.acknowledgement.positions import expanded
from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, FIXED, UNREAD_CODE, EntryCodes, EntryState
from pulsar_spark.protocol.entries.entry_map import UNCHANGED, Change, EntryMap

_SHORT = 64
"""Entries of a range up to which its positions are named one by one, together with those of others."""


def state_of(held: Range) -> EntryState:
    """What a range says of each of its entries; those that are dead count as acknowledged."""
    is_done = held.status in (ACKNOWLEDGED, DEAD)
    return FIXED[ACKNOWLEDGED_CODE] if is_done else EntryState(*held[2:-1])


def ranges_of(entries: EntryMap, first: int = 0, last: int | None = None) -> PackedRanges:
    """What is known of the entries *first*..*last* above mark-delete, as ranges by position.

    >>> entries = EntryMap()
    >>> put_ranges(entries, [Range(1, 3, "pending", "c", 1, 0, batch_size=1), Range(5, 5, "acknowledged")])
    >>> [held[:4] for held in ranges_of(entries)]
    [(1, 3, 'pending', 'c'), (5, 5, 'acknowledged', None)]
    """
    first, last = max(first, entries.mark_delete + 1), entries.end - 1 if last is None else min(last, entries.end - 1)
    firsts, lasts, codes = entries.runs(first, last)
    is_known = codes != UNREAD_CODE
    used, which = used_numbers(codes[is_known], len(entries.codes))
    tails = [(*entries.codes.state(code), None) for code in used.tolist()]
    return PackedRanges(np.stack([firsts[is_known], lasts[is_known]]), which, tails)


def put_ranges(entries: EntryMap, ranges: Sequence[Range]) -> None:
    """Let the entries of *ranges*, none of which overlaps another, have their states."""
    packed = joined([ranges]).in_order()
    if not len(packed):
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


def changed_ranges(changes: Sequence[Change], codes: EntryCodes, mark_delete: int) -> list[Range]:
    """What changed, as ranges of the states that the entries above *mark_delete* have now."""
    found: list[Range] = []
    for change in changes:
        if change.is_uniform:
            runs = [(change.first, change.last, int(change.codes[0]))]
        else:
            starts = np.append(0, np.flatnonzero(change.codes[1:] != change.codes[:-1]) + 1)
            stops = np.append(starts[1:], change.entries) - 1
            runs = zip((change.first + starts).tolist(), (change.first + stops).tolist(), change.codes[starts].tolist())
        for first, last, code in runs:
            if code == UNCHANGED or last <= mark_delete:
                continue
            first = max(first, mark_delete + 1)
            if found and code != ACKNOWLEDGED_CODE and found[-1].last + 1 == first:
                state = codes.state(code)
                if found[-1][2:-1] == state:
                    found[-1] = found[-1]._replace(last=last)
                    continue
            found.append(Range(first, last, *codes.state(code)))
    return found


class EntryRanges(Sequence[Range]):
    """What a map says, as ranges by position, each made when it is asked for.

    >>> ranges = EntryRanges(EntryMap())
    >>> put_ranges(ranges.entries, [Range(1, 3, "acknowledged")])
    >>> len(ranges), ranges[0][:3], ranges == [Range(1, 3, "acknowledged")]
    (1, (1, 3, 'acknowledged'), True)
    """

    def __init__(self, entries: EntryMap):
        self.entries = entries

    def __iter__(self) -> Iterator[Range]:
        return iter(ranges_of(self.entries))

    def __len__(self) -> int:
        return len(ranges_of(self.entries))

    def __getitem__(self, at: int | slice) -> Range | Sequence[Range]:
        return ranges_of(self.entries)[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None

    def pass_to(self, mark_delete: int) -> None:
        """Let everything up to *mark_delete* be acknowledged, and keep no changes apart."""
        self.entries.set_span(self.entries.mark_delete + 1, mark_delete, ACKNOWLEDGED_CODE)
        self.entries.take_changes()
