"""What a round does to a Key_Shared cursor whose ranges are kept by lane, on the axis of places (see keyed_lanes), and
how what the plan says of places is taken back into entries and lanes."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.entry_states import exact_ranges
from pulsar_spark.broker.lane_form import LaneForm, Stored
from pulsar_spark.protocol.cursor import ACKNOWLEDGED, DEAD, Range


class LaneWork(NamedTuple):
    """What a round does to a cursor kept by lane, in the place of ``affected.Affected``: the ranges that are planned,
    on the axis of places; and what turns places back into entries: from position ``base`` on, the ``codes`` of all
    entries, their lanes as ``parts`` (see lane_form), and in ``order`` the index of the entry at each place that is
    planned."""

    planned: list[Range]
    form: LaneForm
    base: int
    codes: np.ndarray
    parts: np.ndarray
    order: np.ndarray

    def positions(self, held: Range) -> np.ndarray:
        """Where the entries of a range of places are in the topic; not in order."""
        return self.base + self.order[held.first : held.last + 1]

    def acknowledged(self, ranges: Iterable[Range]) -> int:
        """Entries that were not acknowledged before, and were in the backlog."""
        done, passed = self.form.states.number(Range(0, 0, ACKNOWLEDGED)), self.base - self.form.base
        known = sum(
            int(np.count_nonzero(self.codes[self.order[held.first : held.last + 1]] != done))
            for held in ranges
            if held.status == ACKNOWLEDGED
        )
        return known + passed - int(np.count_nonzero(self.form.codes[:passed] == done))

    def dead(self, ranges: Iterable[Range]) -> Iterator[Range]:
        """Those of *ranges* whose entries died, as exact ranges."""
        states = self.form.states
        for held in ranges:
            if held.status == DEAD:
                positions = np.sort(self.positions(held))
                yield from exact_ranges(states, np.full(len(positions), states.number(held)), positions)

    def store(self, ranges: Iterable[Range]) -> Stored:
        """Take what the plan says of places into the cursor's ranges; see :meth:`LaneForm.store`."""
        states, codes = self.form.states, self.codes.copy()
        for held in ranges:
            if held.status == DEAD:
                held = Range(held.first, held.last, ACKNOWLEDGED)
            codes[self.order[held.first : held.last + 1]] = states.number(held)
        return self.form.store(self.base, codes, self.parts)
