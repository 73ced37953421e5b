"""The states of entries, and the number of each state on a cursor: its code.

A cursor's entries have few different states, however many entries there are. Four codes are fixed. The others are given
to states as they come up, and given again once no entry has them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, UNREAD, Range

WAITING = "waiting"
"""The status of an entry whose deliver time has not come."""
PART = "part"
"""The status of a chunk that completes no message."""


class EntryState(NamedTuple):
    """The state of an entry: the attributes of a :class:`~pulsar_spark.protocol.acknowledgement.cursor.Range` without
    its positions. Those that do not apply are None."""

    status: str
    consumer_id: str | None = None
    delivery_round: int | None = None
    redelivery_count: int | None = None
    due_time: int | None = None
    ack_set: tuple[int, ...] | None = None
    batch_size: int | None = None

    @property
    def weight(self) -> int:
        """Messages of the entry that are not acknowledged."""
        return Range(0, 0, *self).unacked_messages


UNREAD_CODE, ACKNOWLEDGED_CODE, WAITING_CODE, PART_CODE = range(4)
FIXED = tuple(map(EntryState, (UNREAD, ACKNOWLEDGED, WAITING, PART)))
"""The states of the codes that are always there."""


class EntryCodes:
    """The codes of one cursor's states. Several codes may mean one state: where all entries of a code change alike,
    the code means another state from then on, and no entry is touched.

    >>> codes = EntryCodes()
    >>> codes.code(EntryState("pending", "c", 7)), codes.code(EntryState("pending", "c", 7)), codes.state(1).status
    (4, 4, 'acknowledged')
    >>> codes.recode(4, EntryState("acknowledged"))
    >>> codes.with_status("acknowledged").tolist(), codes.code(EntryState("acknowledged"))
    ([1, 4], 1)
    """

    def __init__(self):
        self._states: list[EntryState | None] = [*FIXED]
        self._codes: dict[EntryState, int] = {state: code for code, state in enumerate(FIXED)}
        self._free: list[int] = []
        self._acknowledged = {ACKNOWLEDGED_CODE}

    def __len__(self) -> int:
        """The first code that was never given."""
        return len(self._states)

    def code(self, state: EntryState) -> int:
        """The code of a state; a new one where it has none."""
        found = self._codes.get(state)
        if found is None:
            found = self._free.pop() if self._free else len(self._states)
            self.recode(found, state)
        return found

    def recode(self, code: int, state: EntryState) -> None:
        """Let a code mean another *state*, for all entries that have it."""
        self._states += [None] * (code + 1 - len(self._states))
        before = self._states[code]
        if before is not None and self._codes.get(before) == code:
            del self._codes[before]
        self._states[code] = state
        self._codes.setdefault(state, code)
        (self._acknowledged.add if state.status == ACKNOWLEDGED else self._acknowledged.discard)(code)

    def state(self, code: int) -> EntryState:
        state = self._states[code]
        assert state is not None  # entries have codes that mean something
        return state

    @property
    def acknowledged(self) -> list[int]:
        """The codes that mean that an entry is acknowledged."""
        return sorted(self._acknowledged)

    def known(self) -> Iterator[tuple[int, EntryState]]:
        """The codes that mean something, and what."""
        return ((code, state) for code, state in enumerate(self._states) if state is not None)

    def with_status(self, *statuses: str) -> np.ndarray:
        """The codes of states with one of these statuses."""
        return np.array([code for code, state in self.known() if state.status in statuses], np.int64)

    def free(self, counts: np.ndarray) -> None:
        """Take back the codes that no entry has, by how many entries have each."""
        for code in range(len(FIXED), len(self._states)):
            if self._states[code] is not None and (code >= len(counts) or not counts[code]):
                self._clear(code)

    def _clear(self, code: int) -> None:
        state = self._states[code]
        if state is not None and self._codes.get(state) == code:
            del self._codes[state]
        self._states[code] = None
        self._acknowledged.discard(code)
        self._free.append(code)
