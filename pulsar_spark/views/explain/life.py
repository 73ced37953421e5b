"""The life of an entry: its publish, and what each round did with it on each subscription."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pulsar_spark.protocol.acknowledgement import ack_set
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, UNREAD
from pulsar_spark.protocol.delays.instants import LAST_MICROS, from_micros, to_micros
from pulsar_spark.protocol.entries.entry_codes import EntryState
from pulsar_spark.protocol.redelivery.letters import RETRY_LETTER
from pulsar_spark.views.explain.rounds_about import RoundsAbout

PUBLISHED, DELIVERED, ACKED, PART_ACKED = "published", "delivered", "acknowledged", "partly_acknowledged"
RETURNED, RELEASED, RESCHEDULED, MOVED_BACK = "negatively_acknowledged", "released", "rescheduled", "moved_back"
DEAD_LETTERED, RETRY_LETTERED, SUBSCRIBED_LATER = "dead_lettered", "retry_lettered", "subscribed_later"
EVENTS = {
    PUBLISHED: "its producer published it",
    DELIVERED: "a round gave it to a consumer",
    ACKED: "it is done",
    PART_ACKED: "other messages of its batch are done",
    RETURNED: "its consumer gave it back, at once or with a delay",
    RELEASED: "it came back without being counted, as its consumer left or had not shown it",
    RESCHEDULED: "it waits for a time, for the first time or another one than before",
    MOVED_BACK: "the subscription was moved back before it",
    RETRY_LETTERED: "a copy was ordered for the retry letter topic",
    DEAD_LETTERED: "a copy was ordered for the dead letter topic",
    SUBSCRIBED_LATER: "the subscription began after it",
}
"""What can happen to a message. Names are those of the view ``history`` where that has the event."""


class Event(NamedTuple):
    """An event at a round's *time*, of a subscription but for the publish. *state* is that of the entry before, and
    *row* the row of a letter."""

    time: datetime | None
    event: str
    subscription: str | None = None
    consumer_id: str | None = None
    consumer_name: str | None = None
    round: int | None = None
    redelivery_count: int | None = None
    until: datetime | None = None
    state: EntryState | None = None
    row: Mapping[str, Any] = {}


def events_of(rounds: RoundsAbout, position: int, batch_index: int = -1) -> Iterator[Event]:
    """What *rounds* did with an entry, or with one message of its batch."""
    cursors: dict[str, _OnCursor] = {}
    names: dict[str, str] = {}
    for number, rows in rounds:
        names |= {row["consumer_id"]: row["consumer_name"] for row in rows if row["consumer_name"]}
        own = next((row for row in rows if row["kind"] == "round"), {})
        time, ahead = own.get("round_time"), _ahead(own)
        by_subscription: dict[str, list[dict]] = {}
        for row in rows:
            if row["kind"] != "round":
                by_subscription.setdefault(row["subscription"], []).append(row)
        for name, of_cursor in by_subscription.items():
            cursor = cursors.setdefault(name, _OnCursor(position, batch_index))
            for event in cursor.take(number, of_cursor):
                until = event.until + ahead if event.until and event.event == RETURNED else event.until
                named = event._replace(subscription=name, consumer_name=names.get(event.consumer_id or ""))
                yield named._replace(time=time, round=number, until=until)
            rounds.done[name] = cursor.is_done


class _OnCursor:
    def __init__(self, position: int, batch_index: int):
        self._position, self._index = position, batch_index
        self._state = EntryState(UNREAD)
        self._is_known = False

    @property
    def is_done(self) -> bool:
        """Whether the entry is acknowledged, with all messages of its batch."""
        return self._state.status == ACKNOWLEDGED

    def take(self, number: int, rows: list[dict]) -> Iterator[Event]:
        """Apply the rows of a round; yields what happened, without time and names."""
        if any(row["kind"] == "cursor" and row["is_removed"] for row in rows):
            self._state, self._is_known = EntryState(UNREAD), False
            return
        before, was_known = self._state, self._is_known
        letters = [row for row in rows if row["kind"] == "letter" and self._names_it(row)]
        self._state = after = self._after(before, rows)
        self._is_known |= any(row["kind"] == "cursor" for row in rows)
        count = self._count_of_return(number, before, after, letters)
        if count is not None:
            event = RETURNED if count > (before.redelivery_count or 0) else RELEASED
            yield Event(None, event, consumer_id=before.consumer_id, redelivery_count=count, state=before)
        for row in letters:
            kind = RETRY_LETTERED if row["status"] == RETRY_LETTER else DEAD_LETTERED
            of_letter = {"consumer_id": row["consumer_id"], "redelivery_count": row["redelivery_count"]}
            yield Event(None, kind, state=before, row=row)._replace(**of_letter)
        what = self._event(number, before, after, is_new=not was_known)
        if what is not None and not (letters and what == ACKED):
            state = after if what in (DELIVERED, RESCHEDULED) else before
            yield Event(
                None,
                what,
                consumer_id=state.consumer_id,
                redelivery_count=after.redelivery_count,
                until=_time(after.due_time) if what in (RETURNED, RESCHEDULED) else None,
                state=before,
            )

    def _count_of_return(self, number: int, before: EntryState, after: EntryState, letters: list[dict]) -> int | None:
        """The redelivery count of an entry that came back in the round, though the round may have delivered it again;
        None if it did not, or its return was known before."""
        if before.status != PENDING or before.due_time is not None or self._is_done(before):
            return None
        dead = [row for row in letters if row["status"] != RETRY_LETTER and row["request_id"] is None]
        if dead:
            return dead[0]["redelivery_count"]
        is_again = after.status == PENDING and after.delivery_round == number
        return (after.redelivery_count or 0) if is_again or after.status == REPLAY else None

    def _names_it(self, letter: dict) -> bool:
        named = letter["ack_set"]
        return self._index < 0 or named is None or ack_set.has(tuple(named), self._index)

    def _after(self, state: EntryState, rows: list[dict]) -> EntryState:
        if any(row["kind"] == "reset" for row in rows):
            state = EntryState(UNREAD)
        for row in rows:
            if row["kind"] != "range":
                continue
            if row["status"] == ACKNOWLEDGED:
                whose = row["consumer_id"], row["delivery_round"]
                if row["consumer_id"] is None or whose == (state.consumer_id, state.delivery_round):
                    state = EntryState(ACKNOWLEDGED)
            else:
                due = row["due_time"] and to_micros(row["due_time"])
                left = None if row["ack_set"] is None else tuple(row["ack_set"])
                given = EntryState(row["status"], row["consumer_id"], row["delivery_round"], row["redelivery_count"])
                state = given._replace(due_time=due, ack_set=left, batch_size=row["batch_size"])
        for row in rows:
            if row["kind"] == "cursor" and row["mark_delete_position"] >= self._position:
                state = EntryState(ACKNOWLEDGED)
        return state

    def _is_done(self, state: EntryState) -> bool:
        is_done = state.ack_set is not None and self._index >= 0 and not ack_set.has(state.ack_set, self._index)
        return is_done or state.status == ACKNOWLEDGED

    def _event(self, number: int, before: EntryState, after: EntryState, *, is_new: bool) -> str | None:
        if self._is_done(before) or self._is_done(after):
            if self._is_done(before) == self._is_done(after):
                return None
            if self._is_done(before):
                return DELIVERED if after.delivery_round == number else MOVED_BACK
            return SUBSCRIBED_LATER if is_new else ACKED
        if after.status == PENDING and after.delivery_round == number:
            return DELIVERED
        if after.status == PENDING:
            if after.due_time is not None and before.due_time is None and before.status == PENDING:
                return RETURNED
            return PART_ACKED if after.ack_set != before.ack_set else None
        if after.status == REPLAY and after.due_time not in (None, before.due_time):
            return RESCHEDULED
        return None


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(min(micros, LAST_MICROS))


def _ahead(own: Mapping[str, Any]) -> timedelta:
    """How far the machine's clock is ahead of the broker's own, by which entries come back."""
    wall, broker = own.get("round_time"), own.get("due_time")
    return timedelta(0) if wall is None or broker is None else wall - broker
