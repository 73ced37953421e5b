"""Why an entry is where it is on a cursor, from the latest rows alone: a word, a sentence and facts.

Nothing is decided here: states, permits, limits and owners are those that the last round wrote.
"""

from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement import ack_set
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, UNREAD
from pulsar_spark.protocol.acknowledgement.packing import unpacked_stretches
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.delays.instants import shown_time, to_micros
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE, WAITING, EntryState
from pulsar_spark.protocol.policies.policies import DELAYED_DELIVERY_ACTIVE, policy_text
from pulsar_spark.protocol.subscriptions.membership import SINGLE_ACTIVE
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.views.activity import round_time
from pulsar_spark.views.explain.entry import DELETED, LOST, TRIMMED, Entry

SECOND = 1_000_000

WORDS = {
    "acknowledged": "done",
    "dead": "given back or put off too often: its letter is in the dead letter topic",
    "put_off": "acknowledged, as a copy waits in the retry letter topic",
    "letter_waits": "acknowledged, and its letter could not be written yet",
    "pending": "out at a consumer that has neither acknowledged nor returned it",
    "given_back": "a consumer gave it back with a delay; it comes again when that ends",
    "delayed": "waits for its deliver time",
    "incomplete_chunk": "a chunk of a message whose other chunks are missing",
    "set_aside": "the broker failed on its topic or subscription, and leaves that out",
    "no_broker": "no broker serves the topic",
    "no_consumers": "no consumer is connected",
    "activating": "its consumer has just become active, and receives after a delay",
    "unacked_limit": "held back by a limit of unacknowledged messages",
    "no_permits": "the consumers that may get it have no permits",
    "no_owner": "no consumer owns the hash of its key",
    "key_drains": "another consumer still has messages of its key",
    "key_waits": "an earlier message of its key was given back, and comes first",
    "recently_joined": "its consumer waits until everything delivered before it joined is acknowledged",
    "unread": "others come before it",
    "next_round": "nothing keeps it back",
    "not_numbered": "no broker has seen it yet",
    "stopped": "the topic's log cannot be read up to it",
    TRIMMED: "trimmed from the topic",
    DELETED: "removed from the topic's table by SQL",
    LOST: "its file is missing or damaged",
}
"""The words of reasons, and what each means."""


class Reason(NamedTuple):
    """One of :data:`WORDS`, a sentence about *it*, the message, and facts by JSON names."""

    word: str
    sentence: str
    facts: dict[str, Any] = {}


class Seen(NamedTuple):
    """A bundle's latest rows at *now*, microseconds by this machine's clock."""

    layout: Layout
    latest: LatestRows
    ledgers: LedgerIndex
    now: int

    @property
    def own_now(self) -> int:
        """The time by the broker's own clock, by which entries come back and leases end."""
        return self.now - self._ahead

    @property
    def _ahead(self) -> int:
        row = self.latest.round_row or {}
        wall, own = row.get("round_time"), row.get("due_time")
        return 0 if wall is None or own is None else to_micros(wall) - to_micros(own)

    def time_of(self, round_number: int | None) -> datetime | None:
        """The time of a round by the machine's clock."""
        return None if round_number is None else round_time(self.layout, round_number)

    def until(self, micros: int, *, is_own: bool = False) -> tuple[str, str]:
        """A time, of the broker's own clock if *is_own*: as ISO 8601, and in words."""
        wall = micros + self._ahead if is_own else micros
        shown = shown_time(wall)
        return shown, f"{shown}, in {shown_seconds(max(0, wall - self.now) / SECOND)}"


class Position:
    """An entry on one cursor."""

    def __init__(self, seen: Seen, entry: Entry, key: CursorKey):
        self.seen, self.entry, self.key = seen, entry, key
        self.cursor = seen.latest.cursors[key]
        self.position = entry.position if entry.position is not None else -1
        consumers = seen.latest.consumers[key].values()
        self.consumers = sorted(consumers, key=lambda row: row["join_order"] or 0)

    @cached_property
    def state(self) -> EntryState:
        entries = self.seen.latest.entries(self.key)
        return entries.codes.state(int(entries.at(np.array([self.position]))[0]))

    @property
    def is_acknowledged(self) -> bool:
        """Whether its message is acknowledged; of a batch the one that the id names, or else all."""
        left, index = self.state.ack_set, self.entry.batch_index
        if self.entry.is_incomplete:
            return self.position <= self.cursor["mark_delete_position"] or self.position in self._released
        return self.state.status == ACKNOWLEDGED or (left is not None and index >= 0 and not ack_set.has(left, index))

    @property
    def _released(self):
        return unpacked_stretches(self.cursor["chunks"])

    @property
    def waits_until(self) -> int | None:
        """The time before which it is not delivered, in microseconds."""
        state = self.state
        if state.status == REPLAY:
            return state.due_time if (state.due_time or 0) > self.seen.now else None
        if state.status not in (WAITING, UNREAD) or (state.status == UNREAD and not self._honours_delays):
            return None
        return self.entry.deliver_at if self.entry.deliver_at > self.seen.now else None

    @property
    def _honours_delays(self) -> bool:
        is_active = policy_text(self.seen.latest.policies, self.cursor["topic"], DELAYED_DELIVERY_ACTIVE) != "0"
        return is_active and self.cursor["subscription_type"] not in SINGLE_ACTIVE

    @property
    def is_again(self) -> bool:
        return self.state.status == REPLAY

    def before(self) -> int:
        """How many entries come before it, as they are unread or to be delivered again."""
        entries, until = self.seen.latest.entries(self.key), self.position - 1
        again = [
            code
            for code, state in entries.codes.known()
            if state.status == REPLAY and (state.due_time or 0) <= self.seen.now
        ]
        first = self.cursor["mark_delete_position"] + 1
        if self.is_again:
            return entries.count(again, first, until) if again else 0
        count = entries.count([UNREAD_CODE], first, until)
        return count + (entries.count(again, first, max(entries.end - 1, first)) if again else 0)

    def name_of(self, consumer_id: str | None) -> str | None:
        row = self.seen.latest.consumers[self.key].get(consumer_id or "")
        return row["consumer_name"] if row else None


def reason_here(at: Position) -> Reason | None:
    """Why the entry is where it is; None if only the next round keeps it from a consumer."""
    if at.is_acknowledged:
        return Reason("acknowledged", "it is acknowledged")
    if at.entry.is_incomplete:
        there, of = at.entry.chunks
        sentence = f"it is a chunk of an incomplete message, of which {there} of {of} chunks are there"
        return Reason("incomplete_chunk", sentence, {"chunks": there, "numChunks": of})
    if at.state.status == PENDING:
        return _pending(at)
    until = at.waits_until
    if until is not None:
        shown, words = at.seen.until(until)
        return Reason("delayed", f"it waits for its deliver time, {words}", {"until": shown})
    return None


def _pending(at: Position) -> Reason:
    state, times = at.state, at.state.redelivery_count or 0
    since, name = at.seen.time_of(state.delivery_round), at.name_of(state.consumer_id)
    facts = {
        "consumerName": name,
        "consumerId": state.consumer_id,
        "since": since and since.isoformat(),
        "redeliveryCount": times,
    }
    consumer = f"consumer {name!r}" if name else f"consumer {state.consumer_id!r}, which has left"
    again = f" (redelivered {times} times)" if times else ""
    if state.due_time is None:
        when = f" since {since.isoformat()}" if since else ""
        return Reason("pending", f"it is out at {consumer}{when}{again}", facts)
    until, words = at.seen.until(state.due_time, is_own=True)
    sentence = f"{consumer} gave it back; unless acknowledged it comes again at {words}{again}"
    return Reason("given_back", sentence, {**facts, "until": until})
