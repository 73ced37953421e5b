"""A Key_Shared cursor's ranges in compact form, by lane.

With many keys, exact ranges come to one row per entry. A lane is a set of hashes with one history of owners; its ranges
mean only entries with these hashes. So rows follow consumers and rounds in flight, not keys (design 4.3, 10).

New owners split lanes (see lane_parts); lanes of one owner merge if that adds no ranges. Only ranges are stored; each
entry's state and lane are computed when needed, and not in rounds of whole ranges (see keyed_ranges).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple
from weakref import proxy

import numpy as np

from pulsar_spark.broker.gathering.entry_hashes import EntryHashes
from pulsar_spark.broker.key_shared.lane_parts import LaneParts
from pulsar_spark.broker.key_shared.whole_ranges import begun_at, first_left, joined
from pulsar_spark.broker.round.entry_states import UNREAD, EntryCodes, EntryStates, by_number, exact_ranges, lane_ranges
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range
from pulsar_spark.protocol.keys.lanes import LaneHashes, are_certain, known_entries, lane_numbers
from pulsar_spark.protocol.keys.selectors import Selector

_FEW_STATES = 1000


def page_of(lane: int) -> int:
    """The page number of a lane, below zero, unlike exact pages."""
    return -1 - lane


def lane_of(page: int) -> int:
    return -1 - page


class Lane(NamedTuple):
    """A lane's hashes, and its ranges by position."""

    hashes: LaneHashes
    ranges: list[Range]


class LaneForm:
    """A cursor's ranges by lane; ``lanes`` has those with ranges, by number."""

    def __init__(self, hashes: EntryHashes, base: int, lanes: dict[int, Lane]):
        self.hashes, self.lanes = hashes, lanes
        self.states = EntryStates()
        self._base = base
        form = proxy(self)  # a cycle would keep large forms until garbage collection
        self._codes = EntryCodes(lambda: form._read_codes())
        self.parts = LaneParts(hashes, base, {number: lane.hashes for number, lane in lanes.items()})
        self._ranges_of = {number: lane.ranges for number, lane in lanes.items()}
        """Of each part, whether or not it has any, the ranges that are what its entries' states say."""

    @classmethod
    def of_ranges(cls, hashes: EntryHashes, base: int, ranges: Iterable[Range]) -> "LaneForm":
        """The form for exact *ranges* from *base* on; lanes are made at the next :meth:`store`."""
        form = cls(hashes, base, {})
        ranges = [held for held in ranges if held.last >= base]
        codes = np.full(max((held.last for held in ranges), default=base - 1) + 1 - base, UNREAD, np.int32)
        for held in ranges:
            codes[max(held.first - base, 0) : held.last + 1 - base] = form.states.number(held)
        form._codes = EntryCodes(lambda: codes)
        return form

    # All entries

    @property
    def base(self) -> int:
        """The first position after mark-delete."""
        return self._base

    @property
    def codes(self) -> np.ndarray:
        """The state number of each entry from :attr:`base` on; later ones are unread."""
        return self._codes.all

    def _codes_of_parts(self, entries: int) -> np.ndarray:
        """The states of the first *entries* entries, all touched, from each lane's ranges."""
        in_order = by_number(self.parts.of_first(entries))
        held = [held for index in range(len(self.parts)) for held in self.ranges_of(index)]
        codes = np.empty(entries, np.int32)
        codes[in_order] = np.repeat(np.array([*map(self.states.number, held)], np.int32), [each.size for each in held])
        return codes

    def _read_codes(self) -> np.ndarray:
        last = max((lane.ranges[-1].last for lane in self.lanes.values()), default=self._base - 1)
        codes, hashes = np.full(last + 1 - self._base, UNREAD, np.int32), self.hashes.between(self._base, last)
        if not len(codes):
            return codes
        numbers = lane_numbers([lane.hashes for lane in self.lanes.values()]).of(hashes)
        are_gone = cache(partial(self.hashes.gone, self._base, last))
        for number, lane in enumerate(self.lanes.values()):
            places = np.flatnonzero(numbers == number)
            for held in lane.ranges:
                first, end = np.searchsorted(places, [held.first - self._base, held.last + 1 - self._base])
                found = places[first:end]
                if not are_certain(len(found), held.size):
                    self._ranges_of = {}
                if held.status != ACKNOWLEDGED:  # missing entries go out again, and the consumer finds out
                    found = known_entries(found, held.size, are_gone)
                codes[found] = self.states.number(held)
        return codes

    def ranges(self) -> Iterator[Range]:
        return exact_ranges(self.states, self.codes, self._base + np.arange(len(self.codes)))

    def find(self, position: int) -> Range | None:
        """The state of one entry; None if never delivered."""
        at = position - self._base
        code = self.codes[at] if 0 <= at < len(self.codes) else UNREAD
        return None if code == UNREAD else self.states.range(int(code), position, position)

    def first_unread(self, position: int) -> int:
        """The first entry from *position* on that was never delivered."""
        return self._base + self._codes.first_unread(max(position - self._base, 0))

    @property
    def end(self) -> int:
        """The position after the last touched entry."""
        return self._base + len(self._codes)

    # Ranges

    def every_range(self) -> Iterator[Range]:
        for lane in self.lanes.values():
            yield from lane.ranges

    @property
    def rows(self) -> int:
        return sum(len(lane.ranges) for lane in self.lanes.values())

    def unacked(self) -> Counter:
        found = Counter()
        for held in self.every_range():
            if held.status == PENDING:
                found[held.consumer_id] += held.unacked_messages
        return found

    def returns_at(self) -> int | None:
        """When the next pending entries come back by themselves."""
        return min(
            (held.due_time for held in self.every_range() if held.status == PENDING and held.due_time), default=None
        )

    def replays_at(self) -> list[int]:
        """Sorted times from which ranges may be delivered again; 0 for now."""
        return sorted(held.due_time or 0 for held in self.every_range() if held.status == REPLAY)

    # Whole ranges

    def ranges_of(self, index: int) -> list[Range]:
        """The ranges of the lane at *index* of the parts."""
        return self._ranges_of.get(self.parts.number(index), [])

    def has_whole_ranges(self, selector: Selector) -> bool:
        """Can ranges change as a whole (see whole_ranges)? True if each owner by *selector* has one lane, and every
        entry before the end is acknowledged or pending with its owner."""
        touched = self.end - self._base  # computing this may drop doubtful ranges
        if not touched and not self.parts.are_by(selector):
            self.parts.of_entries(self._base, 0, selector)
        owners = self.parts.owners
        return (
            self.parts.are_by(selector)
            and len(set(owners)) == len(owners)
            and self.lanes.keys() <= {part.number for part in self.parts}
            and not any(held.status == REPLAY for held in self.every_range())
            and self.is_with_owners(selector)
            and touched == sum(held.size for index in range(len(owners)) for held in self.ranges_of(index))
        )

    def store_ranges(self, changed: Mapping[int, Sequence[Range]], end: int) -> "Stored":
        """Store *changed* ranges, by index of their lane; all entries before *end* are touched. Returns what
        :meth:`store` does."""
        ranges_of = [joined(changed.get(index, self.ranges_of(index))) for index in range(len(self.parts))]
        base, lanes = first_left(ranges_of, end), self.parts.of_first(end - self._base)
        passed = base - self._base
        ranges_of = begun_at(ranges_of, base, lanes[:passed], lanes[passed:])
        self.parts.begin_at(base)
        form, entries = proxy(self), end - base
        self._base, self._codes = base, EntryCodes(lambda: form._codes_of_parts(entries), entries)
        return self._keep(ranges_of)

    # Stored by entry

    def is_with_owners(self, selector: Selector) -> bool:
        """Is every pending entry with its owner by *selector*, without a due time?"""
        owners = {part.number: part.owner for part in self.parts}
        return self.parts.are_by(selector) and all(
            held.status != PENDING or (held.consumer_id == owners[number] and held.due_time is None)
            for number, lane in self.lanes.items()
            for held in lane.ranges
        )

    def store(self, base: int, codes: np.ndarray, parts: np.ndarray) -> "Stored":
        """Store the states of all entries from *base* on, with their lanes *parts*; returns what to write."""
        is_touched = codes != UNREAD
        end = len(codes) - int(np.argmax(is_touched[::-1])) if is_touched.any() else 0
        done = codes[:end] != self.states.number(Range(0, 0, ACKNOWLEDGED))
        passed = int(np.argmax(done)) if done.any() else end
        known = self.codes[base - self._base :]
        is_other = np.append(codes[: len(known)] != known, is_touched[len(known) :])
        changed = np.bincount(parts[is_other], minlength=len(self.parts)) > 0
        self.parts.begin_at(base + passed)
        left = codes[passed:end]
        self._base, self._codes = base + passed, EntryCodes(lambda: left)
        stored = self._keep(self._merged(self._of_parts(changed), changed))
        self._forget_states()
        return stored

    def _keep(self, ranges_of: list[list[Range]]) -> "Stored":
        self._ranges_of = {part.number: ranges for part, ranges in zip(self.parts, ranges_of, strict=True)}
        before, self.lanes = self.lanes, {}
        for part in self.parts:
            if ranges := self._ranges_of[part.number]:
                self.lanes[part.number] = Lane(part.hashes, ranges)
        changed_lanes = {number: lane for number, lane in self.lanes.items() if before.get(number) != lane}
        return Stored(changed_lanes, sorted(before.keys() - self.lanes.keys()))

    def _of_parts(self, changed: np.ndarray) -> list[list[Range]]:
        """The ranges of each part, made anew for new parts and where *changed* or passed; *changed* is updated."""
        known = [self._ranges_of.get(part.number) for part in self.parts]
        for index, ranges in enumerate(known):
            changed[index] |= ranges is None or any(held.first < self._base for held in ranges)
        numbers = self.parts.of_first(len(self.codes))
        entries = np.flatnonzero(changed[numbers])
        entries = entries[by_number(numbers[entries])]
        bounds = np.searchsorted(numbers[entries], np.arange(len(known) + 1))
        return [
            self._ranges(entries[start:stop]) if is_changed else ranges
            for ranges, is_changed, start, stop in zip(known, changed.tolist(), bounds, bounds[1:])
        ]

    def _merged(self, ranges_of: list[list[Range]], changed: np.ndarray) -> list[list[Range]]:
        """The ranges after merging lanes of one owner where that adds none; two that have not *changed* are not
        compared again."""
        numbers = self.parts.of_first(len(self.codes))
        of_owner: dict[str | None, list[tuple[list[int], list[Range]]]] = {}
        for index, (owner, ranges) in enumerate(zip(self.parts.owners, ranges_of, strict=True)):
            others = of_owner.setdefault(owner, [])
            for at, (members, its_ranges) in enumerate(others):
                both = [*members, index]
                if not changed[both].any():
                    continue
                is_in = np.zeros(len(changed), bool)
                is_in[both] = True
                of_both = self._ranges(np.flatnonzero(is_in[numbers]))
                if len(of_both) <= len(its_ranges) + len(ranges):
                    others[at] = both, of_both
                    break
            else:
                others.append(([index], ranges))
        found = [each for others in of_owner.values() for each in others]
        self.parts.merge([members for members, _ in found])
        return [ranges for _, ranges in found]

    def _ranges(self, places: np.ndarray) -> list[Range]:
        return [*lane_ranges(self.states, self.codes[places], self._base + places)]

    def _forget_states(self) -> None:
        if len(self.states) <= _FEW_STATES:
            return
        used = np.unique(self.codes)
        if len(self.states) > 2 * len(used) + _FEW_STATES:
            states, self.states = self.states, EntryStates()
            numbers = np.full(len(states) + 1, UNREAD, np.int32)
            for code in used[used >= 0].tolist():
                numbers[code] = self.states.number(states.range(code, 0, 0))
            renumbered = numbers[self.codes]
            self._codes = EntryCodes(lambda: renumbered)


class Stored(NamedTuple):
    """Lanes to write, by number, and numbers of lanes to remove."""

    changed: dict[int, Lane]
    gone: list[int]
