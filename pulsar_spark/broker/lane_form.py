"""The compact form of a Key_Shared cursor: its ranges by lane.

With many keys the entries of one consumer lie between those of all others, so exact ranges of positions come to a row
an entry. Where a cursor has so many, its ranges are kept by lane: a lane is hashes with one history of owners, and a
range of a lane means, of the positions between its ends, only the entries with a hash of the lane. What a lane is dealt
and acknowledges in order is one range, whatever the keys; so a cursor with millions of entries in flight is as many
rows as consumers and rounds in flight: with 32 consumers by consistent hashing, two deliveries each, 10^6 entries of
10^6 keys and acknowledgements out of step, 93 rows at most, where exact ranges are 970,000 (design 4.3, 10). 10^7
entries in flight at 1, 4 and 32 consumers are 1, 4 and 32 rows; what rounds over them take is said in keyed_ranges.

When owners change, each lane is split by the new ones (see lane_parts). Lanes of one owner are merged once that makes
no more ranges. Waiting entries cut the ranges they lie in, so how many are passed over is bounded, as Pulsar bounds its
look-ahead, and less the more ranges there are, and with it the rows.

Beside the ranges, which are what is stored, the state of each entry between mark-delete and the end of what was touched
is kept as a number, and so is its lane, six bytes an entry; they follow from the ranges and the hashes and are made
when a round needs them. A round makes the ranges anew of those lanes alone of which it changed an entry; one that
changes whole ranges (see keyed_ranges) needs the state of none.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple
from weakref import proxy

import numpy as np

from pulsar_spark.broker.entry_hashes import EntryHashes
from pulsar_spark.broker.entry_states import UNREAD, EntryCodes, EntryStates, by_number, exact_ranges, lane_ranges
from pulsar_spark.broker.lane_parts import LaneParts
from pulsar_spark.broker.whole_ranges import begun_at, first_left, joined
from pulsar_spark.protocol.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range
from pulsar_spark.protocol.lanes import LaneHashes, are_told, known_entries, lane_numbers
from pulsar_spark.protocol.selectors import Selector

_FEW_STATES = 1000


def page_of(lane: int) -> int:
    """The number of the page that a lane's ranges are: never that of a page of exact ranges."""
    return -1 - lane


def lane_of(page: int) -> int:
    """The lane that is a page."""
    return -1 - page


class Lane(NamedTuple):
    """A lane's hashes, and its ranges by position."""

    hashes: LaneHashes
    ranges: list[Range]


class LaneForm:
    """A cursor's ranges by lane. ``lanes`` are those that have any, by number."""

    def __init__(self, hashes: EntryHashes, base: int, lanes: dict[int, Lane]):
        self.hashes, self.lanes = hashes, lanes
        self.states = EntryStates()
        self._base = base
        form = proxy(self)  # what holds itself would wait for Python's search for cycles, and forms are large
        self._codes = EntryCodes(lambda: form._read_codes())
        self.parts = LaneParts(hashes, base, {number: lane.hashes for number, lane in lanes.items()})
        self._ranges_of = {number: lane.ranges for number, lane in lanes.items()}
        """Of each part, whether or not it has any, the ranges that are what its entries' states say."""

    @classmethod
    def of_ranges(cls, hashes: EntryHashes, base: int, ranges: Iterable[Range]) -> "LaneForm":
        """The same as exact *ranges* say, from position *base* on; its lanes are made when it is next written."""
        form = cls(hashes, base, {})
        ranges = [held for held in ranges if held.last >= base]
        codes = np.full(max((held.last for held in ranges), default=base - 1) + 1 - base, UNREAD, np.int32)
        for held in ranges:
            codes[max(held.first - base, 0) : held.last + 1 - base] = form.states.number(held)
        form._codes = EntryCodes(lambda: codes)
        return form

    # What is known of all entries

    @property
    def base(self) -> int:
        """The first position behind mark-delete."""
        return self._base

    @property
    def codes(self) -> np.ndarray:
        """The number of each entry's state, from :attr:`base` on; everything behind them is unread."""
        return self._codes.all

    def _codes_of_parts(self, entries: int) -> np.ndarray:
        """Where every one of so many entries was touched: lane by lane, in order, they are as many of each range as it
        counts."""
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
                first, behind = np.searchsorted(places, [held.first - self._base, held.last + 1 - self._base])
                found = places[first:behind]
                if not are_told(len(found), held.size):
                    self._ranges_of = {}
                if held.status != ACKNOWLEDGED:  # what is gone is handed out again, and whoever gets it finds out
                    found = known_entries(found, held.size, are_gone)
                codes[found] = self.states.number(held)
        return codes

    def ranges(self) -> Iterator[Range]:
        """Exact ranges, by position."""
        return exact_ranges(self.states, self.codes, self._base + np.arange(len(self.codes)))

    def find(self, position: int) -> Range | None:
        """What is known of one entry; None of one never delivered."""
        at = position - self._base
        code = self.codes[at] if 0 <= at < len(self.codes) else UNREAD
        return None if code == UNREAD else self.states.range(int(code), position, position)

    def first_unread(self, position: int) -> int:
        """The first entry at *position* or behind it that was never delivered."""
        return self._base + self._codes.first_unread(max(position - self._base, 0))

    @property
    def end(self) -> int:
        """The first position behind everything that was touched."""
        return self._base + len(self._codes)

    # What its ranges say

    def every_range(self) -> Iterator[Range]:
        for lane in self.lanes.values():
            yield from lane.ranges

    @property
    def rows(self) -> int:
        """How many ranges there are."""
        return sum(len(lane.ranges) for lane in self.lanes.values())

    def unacked(self) -> Counter:
        """Messages that each consumer has unacknowledged."""
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
        """When ranges that are to be delivered again may be, in order; 0 for at once."""
        return sorted(held.due_time or 0 for held in self.every_range() if held.status == REPLAY)

    # Whole ranges

    def ranges_of(self, index: int) -> list[Range]:
        """The ranges of the lane with an index."""
        return self._ranges_of.get(self.parts.number(index), [])

    def has_whole_ranges(self, selector: Selector) -> bool:
        """Are the lanes one of each owner, as *selector* says, is every entry touched that lies before the end, and
        with its owner or acknowledged? Then ranges can change as a whole (see whole_ranges). Not where they are to be
        made yet, of exact ranges (:meth:`of_ranges`) or because what is gone left doubts."""
        touched = self.end - self._base  # to ask this may forget ranges that are in doubt
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
        """Take in the ranges of lanes, by index, that changed, all entries before *end* having been touched; what is to
        be written, as :meth:`store` says it."""
        ranges_of = [joined(changed.get(index, self.ranges_of(index))) for index in range(len(self.parts))]
        base, lanes = first_left(ranges_of, end), self.parts.of_first(end - self._base)
        passed = base - self._base
        ranges_of = begun_at(ranges_of, base, lanes[:passed], lanes[passed:])
        self.parts.begin_at(base)
        form, entries = proxy(self), end - base
        self._base, self._codes = base, EntryCodes(lambda: form._codes_of_parts(entries), entries)
        return self._keep(ranges_of)

    # Written anew

    def is_with_owners(self, selector: Selector) -> bool:
        """Is every entry that is out with the owner of its hash, as *selector* says, and comes not back by itself?"""
        owners = {part.number: part.owner for part in self.parts}
        return self.parts.are_by(selector) and all(
            held.status != PENDING or (held.consumer_id == owners[number] and held.due_time is None)
            for number, lane in self.lanes.items()
            for held in lane.ranges
        )

    def store(self, base: int, codes: np.ndarray, parts: np.ndarray) -> "Stored":
        """Take in the state of all entries from *base* on, whose lanes are *parts* (see lane_parts); what is to be
        written: the lanes that changed, and the numbers of those that are gone."""
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
        """Let the lanes have these ranges."""
        self._ranges_of = {part.number: ranges for part, ranges in zip(self.parts, ranges_of, strict=True)}
        before, self.lanes = self.lanes, {}
        for part in self.parts:
            if ranges := self._ranges_of[part.number]:
                self.lanes[part.number] = Lane(part.hashes, ranges)
        changed_lanes = {number: lane for number, lane in self.lanes.items() if before.get(number) != lane}
        return Stored(changed_lanes, sorted(before.keys() - self.lanes.keys()))

    def _of_parts(self, changed: np.ndarray) -> list[list[Range]]:
        """The ranges of each part: made anew where entries *changed* or were passed, and of parts that are new, which
        are marked as changed, too."""
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
        """The ranges of the lanes, once those of one owner are merged as far as that makes no more ranges; two of which
        neither *changed* made more before."""
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
        """Number the states anew once most of those that are numbered are past."""
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
    """Lanes to write, by number, and the numbers of those that are gone."""

    changed: dict[int, Lane]
    gone: list[int]
