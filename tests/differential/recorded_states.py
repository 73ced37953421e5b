"""What the reference broker does to each entry, followed by the table of transitions.

Every step of a reference cursor is told to the table as events, entry by entry, worked out from what the step was
given; the table's answer must be the state the entry is in afterwards. Between steps nothing may change an entry. So
the table is complete where no event is unknown to it, and right where no answer differs.
"""

from collections import Counter

import pytest

from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement import entry_states as states
from pulsar_spark.protocol.acknowledgement.entry_states import Transition, transition
from tests.support.model_cursor import Cursor

STEPS = (
    "move_to",
    "done_up_to",
    "move_deliver_times",
    "settle_delays",
    "apply_acks",
    "apply_returns",
    "take_complete",
    "read",
    "dispatch",
)


class RecordedStates:
    """The transitions that were seen of all reference cursors within ``with``, and how often."""

    def __init__(self):
        self.seen: Counter[Transition] = Counter()
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> "RecordedStates":
        for step in STEPS:
            self._patch.setattr(Cursor, step, self._recorded(step, getattr(Cursor, step)))
        return self

    def __exit__(self, *error) -> None:
        self._patch.undo()

    def _recorded(self, step: str, original):
        def recorded(cursor: Cursor, *given, **named):
            entries = _Entries(cursor, self.seen)
            expected = getattr(entries, step, lambda *given, **named: None)
            expected(*given, **named)
            found = original(cursor, *given, **named)
            getattr(entries, f"after_{step}", lambda *answer, **named: None)(found, *given, **named)
            entries.check(step)
            return found

        return recorded


class _Entries:
    """The entries of a cursor in one step: the states they were in, and those the table sends them to."""

    def __init__(self, cursor: Cursor, seen: Counter):
        self.cursor, self.seen = cursor, seen
        self.states, self.counts = _states(cursor), Counter(_counts(cursor))
        self.letters, self.died = len(cursor.letters), []
        assert getattr(cursor, "recorded_states", self.states) == self.states, "an entry changed between the steps"

    def meet(self, position: int, event: str, guard: str = states.ALWAYS) -> str:
        """Send the entry on; the state it comes to."""
        made = transition(self.states.get(position, states.UNREAD), event, guard)
        self.seen[made] += 1
        self.states[position] = made.next_state
        if event == states.REDELIVER:
            self.counts[position] += 1
        if event == states.SEEK or made.next_state == states.ACKNOWLEDGED:
            self.counts.pop(position, None)
        return made.next_state

    def check(self, step: str) -> None:
        found, known = _states(self.cursor), set(self.states)
        assert {at: found.get(at, states.UNREAD) for at in known | set(found)} == {
            at: self.states.get(at, states.UNREAD) for at in known | set(found)
        }, step
        assert _counts(self.cursor) == {at: count for at, count in self.counts.items() if count}, step
        self.cursor.recorded_states = found

    def move_to(self, target: int) -> None:
        for position in range(max(target, *self.states, -1) + 1):
            is_before = position < target
            self.meet(position, states.SEEK, states.IS_BEFORE_TARGET if is_before else states.IS_NOT_BEFORE_TARGET)

    def done_up_to(self, last: int) -> None:
        for position in range(last + 1):
            self.meet(position, states.ACKNOWLEDGE)

    def move_deliver_times(self, positions: list[int], due_ms: int) -> None:
        for position in positions:
            self.meet(position, states.RESCHEDULE)

    def apply_acks(self, now_ms: int, batches: list[int]) -> None:
        kept = {}
        for first, last, left, is_cumulative in self.cursor.acks:
            for position in range(first, last + 1):
                if left is None:
                    self.meet(position, states.ACKNOWLEDGE)
                    continue
                if self.states.get(position) == states.ACKNOWLEDGED:
                    self.meet(position, states.ACKNOWLEDGE_PART)
                    continue
                whole = ack_sets.full(batches[position])
                before = kept.get(position, set(ack_sets.indexes(self.cursor.ack_sets.get(position, whole))))
                asked = set(ack_sets.indexes(left))
                if is_cumulative:
                    kept[position] = asked if min(asked) > min(before) else before
                else:
                    kept[position] = before & asked
                self.meet(
                    position, states.ACKNOWLEDGE_PART, states.LEAVES_SOME if kept[position] else states.LEAVES_NONE
                )

    def apply_returns(self, now_ms: int, batches: list[int]) -> None:
        cursor = self.cursor
        due_ms = {position: held.due_ms for position, held in cursor.pending.items()}
        unseen = set()
        for first, last, consumer_id, delay_ms, is_unseen in cursor.negative_acks:
            for position in range(first, last + 1):
                held = cursor.pending.get(position)
                is_holder = held is not None and held.consumer_id == consumer_id
                self.meet(position, states.NEGATIVE_ACKNOWLEDGE, states.BY_HOLDER if is_holder else states.BY_OTHERS)
                if is_holder:
                    due_ms[position] = now_ms + delay_ms
                    (unseen.add if is_unseen else unseen.discard)(position)
        asked = {at for at, held in cursor.pending.items() if held.consumer_id in cursor.redeliver_all}
        returned = asked | {at for at, due in due_ms.items() if due is not None and due <= now_ms}
        counted = asked | (returned - unseen)
        for position, held in cursor.pending.items():
            if position in counted:
                self._redeliver(position, held.redelivery_count)
            elif position in returned or (returned and cursor.is_single_active()) or held.consumer_id in cursor.left:
                self.meet(position, states.RELEASE)

    def _redeliver(self, position: int, count: int) -> None:
        is_too_often = 0 < self.cursor.max_redeliver_count <= count
        self.meet(position, states.REDELIVER, states.IS_TOO_OFTEN if is_too_often else states.MAY_COME_AGAIN)
        if is_too_often:
            self.died.append(position)
            self.meet(position, states.ORDER_LETTERS)

    def after_apply_returns(self, answer: None, *given) -> None:
        assert {letter.position for letter in self.cursor.letters[self.letters :]} == set(self.died)

    def after_read(self, unread: list[int], now_ms: int, **named) -> None:
        deliver_ms = self.cursor.delays.deliver_ms
        self._follow_chunks()
        for position in _states(self.cursor):
            is_met = position in self.cursor.replay and self.states.get(position, states.UNREAD) == states.UNREAD
            if is_met:
                assert deliver_ms[position] > now_ms and not self.cursor.is_single_active()
                self.meet(position, states.WAIT, states.IS_SHARED)

    def after_take_complete(self, answer: None) -> None:
        self._follow_chunks()

    def _follow_chunks(self) -> None:
        """What is acknowledged or withheld before anybody got it, because of what it is or was a chunk of."""
        chunks = self.cursor.units.chunks
        for position, state in _states(self.cursor).items():
            before = self.states.get(position, states.UNREAD)
            if (chunks.entries[position] is None) or before not in (states.UNREAD, states.REPLAY):
                continue
            if state == states.ACKNOWLEDGED:
                self.meet(position, states.ACKNOWLEDGE)
            elif state == states.PENDING:
                self.meet(position, states.WITHHOLD)

    def dispatch(self, batches: list[int], unread: list[int], *, now_ms: int, **named) -> None:
        cursor = self.cursor
        self.early = {
            position
            for position in range(len(batches))
            if cursor.knows_delays() and (self._due_ms(position) or now_ms) > now_ms
        }

    def _due_ms(self, position: int) -> int | None:
        back = self.cursor.replay.get(position)
        return back.due_ms if back else self.cursor.delays.deliver_ms[position]

    def after_dispatch(self, deliveries: list, *given, **named) -> None:
        for delivery in deliveries:
            assert delivery.position not in self.early
            self.meet(delivery.position, states.DELIVER, states.IS_DUE)


def _states(cursor: Cursor) -> dict[int, str]:
    """The state of each entry that the cursor knows of."""
    known = {position: states.ACKNOWLEDGED for position in (*range(cursor.mark_delete + 1), *cursor.acknowledged)}
    known |= dict.fromkeys(cursor.pending, states.PENDING) | dict.fromkeys(cursor.replay, states.REPLAY)
    assert len(known) == cursor.mark_delete + 1 + sum(map(len, (cursor.acknowledged, cursor.pending, cursor.replay))), (
        "an entry is in two states"
    )
    return known


def _counts(cursor: Cursor) -> dict[int, int]:
    """Redelivery counts above 0."""
    held = [*cursor.pending.items(), *cursor.replay.items()]
    return {position: one.redelivery_count for position, one in held if one.redelivery_count}
