"""What a round does to a Key_Shared cursor kept by lane, on the axis of places (see keyed_lanes)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.key_shared.lane_form import LaneForm, Stored
from pulsar_spark.broker.round.entry_states import exact_ranges
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, DEAD, Range


class LaneWork(NamedTuple):
    """Like ``affected.Affected`` for a cursor kept by lane, with *planned* on the axis of places.

    From position ``base`` on, ``codes`` are the states of all entries and ``parts`` their lanes (see lane_form);
    ``order`` is the entry index of each place.
    """

    planned: list[Range]
    form: LaneForm
    base: int
    codes: np.ndarray
    parts: np.ndarray
    order: np.ndarray

    def positions(self, held: Range) -> np.ndarray:
        """The positions of a range of places; not in order."""
        return self.base + self.order[held.first : held.last + 1]

    def acknowledged(self, ranges: Iterable[Range]) -> int:
        done, passed = self.form.states.number(Range(0, 0, ACKNOWLEDGED)), self.base - self.form.base
        known = sum(
            int(np.count_nonzero(self.codes[self.order[held.first : held.last + 1]] != done))
            for held in ranges
            if held.status == ACKNOWLEDGED
        )
        return known + passed - int(np.count_nonzero(self.form.codes[:passed] == done))

    def dead(self, ranges: Iterable[Range]) -> Iterator[Range]:
        states = self.form.states
        for held in ranges:
            if held.status == DEAD:
                positions = np.sort(self.positions(held))
                yield from exact_ranges(states, np.full(len(positions), states.number(held)), positions)

    def store(self, ranges: Iterable[Range]) -> Stored:
        """Store the plan's result; see :meth:`LaneForm.store`."""
        states, codes = self.form.states, self.codes.copy()
        for held in ranges:
            if held.status == DEAD:
                held = Range(held.first, held.last, ACKNOWLEDGED)
            codes[self.order[held.first : held.last + 1]] = states.number(held)
        return self.form.store(self.base, codes, self.parts)
