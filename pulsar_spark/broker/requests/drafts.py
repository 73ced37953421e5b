"""What a round is to do, by cursor, before it is planned; and the result of a round."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from pulsar_spark.broker.committing.facts import reply_row
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.protocol.acknowledgement.ack_set import is_empty
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey


class Return(NamedTuple):
    """Entries given back, to come again at ``due_time``; uncounted if ``is_unseen`` by the application."""

    first: int
    last: int
    consumer_id: str
    due_time: int
    is_unseen: bool = False


class Removed(NamedTuple):
    """A consumer that left, and why, in a word."""

    consumer: Consumer
    why: str


@dataclass
class CursorChanges:
    """What a round does to a cursor.

    * ``acks``: stretches to acknowledge as a whole; some of their entries may be acknowledged already.
    * ``passed``: stretches to pass over, because their entries wait for their deliver time.
    * ``ack_sets``: by position, what is left of batches that are acknowledged in part.
    * ``delivered_acks``: (first, last, consumer, round), to acknowledge what that round delivered there.
    * ``tails``: (consumer, round, first), to return unseen what was delivered since: by that round, from position
      *first* on, and by later rounds.
    * ``left``, ``redelivered``: consumers that left, or that ask for all their entries again.
    * ``removed``: consumers to remove, with reasons; ``changed_consumers``: those whose rows are to be written.
    * ``is_changed``: the cursor's row is to be written; ``is_rewritten``: so are the states of all its entries.
    * ``hash_ranges_before``: hash ranges before consumers changed.
    """

    cursor: Cursor
    acks: Positions = field(default_factory=Positions)
    passed: Positions = field(default_factory=Positions)
    ack_sets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    delivered_acks: list[tuple[int, int, str, int]] = field(default_factory=list)
    tails: list[tuple[str, int, int]] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    redelivered: set[str] = field(default_factory=set)
    has_new_limits: bool = False
    removed: list[Removed] = field(default_factory=list)
    changed_consumers: set[str] = field(default_factory=set)
    is_changed: bool = False
    is_rewritten: bool = False
    hash_ranges_before: dict[str, list[tuple[int, int]]] | None = None
    expired: int = 0
    """Entries of ``acks`` that no consumer acknowledged: time to live or a quota ended them."""
    dead: int = 0
    """Messages of ``acks`` and ``ack_sets`` that were put off too often."""

    @property
    def is_about_entries(self) -> bool:
        """Is there something for the plan to decide?"""
        return bool(
            self.acks
            or self.passed
            or self.delivered_acks
            or self.ack_sets
            or self.tails
            or self.returns
            or self.left
            or self.redelivered
            or self.has_new_limits
        )

    @property
    def acknowledged_whole(self) -> list[tuple[int, int]]:
        """The stretches to acknowledge as a whole, with batches of which nothing is left."""
        return [*self.acks, *((position, position) for position, left in self.ack_sets.items() if is_empty(left))]

    def expire(self, first: int, last: int) -> None:
        """Acknowledge *first*..*last* because of time to live or a quota; nothing if all are acknowledged already."""
        entries, since = self.cursor.entries, max(first, self.cursor.mark_delete + 1)
        if entries.count(entries.codes.acknowledged, since, last) >= last + 1 - since:
            return
        for begin, end in self.cursor.backlog(first, last):
            self.expired += sum(until - start + 1 for start, until in self.acks.gaps(begin, end))
        self.acks.add(first, last)

    def rewrite(self) -> None:
        """Let the round write the states of all entries, after a change of the cursor's map outside the plan."""
        self.cursor.entries.take_changes()
        self.cursor.follow_map()
        self.is_rewritten = self.is_changed = True

    def drop_requests(self) -> None:
        """Drop all requests so far: the cursor was moved."""
        self.acks, self.ack_sets, self.returns, self.left, self.redelivered = Positions(), {}, [], set(), set()
        self.passed = Positions()
        self.delivered_acks, self.tails = [], []
        self.expired = self.dead = 0


class Refusal(NamedTuple):
    kind: str
    error: str
    text: str
    topic: str | None
    partition: int | None
    subscription: str | None
    consumer: str | None


class RoundResult(NamedTuple):
    """What a round did; ``is_committed`` is False if nothing changed."""

    is_committed: bool
    delivered_messages: int = 0
    acknowledged_entries: int = 0
    letters: int = 0
    expired_entries: int = 0
    refusals: tuple[Refusal, ...] = ()


class Steps(dict[str, int]):
    """How long the steps of a round took, in microseconds, by name."""

    def __init__(self):
        super().__init__()
        self._since = time.perf_counter_ns()

    def end(self, name: str) -> int:
        """The step *name* ends, and the next begins; how long it took."""
        now = time.perf_counter_ns()
        self[name], self._since = (now - self._since) // 1000, now
        return self[name]


@dataclass
class RoundDraft:
    """What a round does to each cursor, and its replies; ``now`` and ``wall`` are the two clocks (see clock)."""

    number: int
    now: int
    wall: int
    was_set_back: bool = False
    cursors: dict[CursorKey, CursorChanges] = field(default_factory=dict)
    facts: list[dict] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)

    def changes_of(self, cursor: Cursor) -> CursorChanges:
        changes = self.cursors.get(cursor.key)
        if changes is None:
            changes = self.cursors[cursor.key] = CursorChanges(cursor)
        return changes

    def may_unblock(self, changes: CursorChanges) -> bool:
        """May requests or returns unblock consumers? The plan decides."""
        return changes.is_about_entries or any(due <= self.now for due in changes.cursor.returns_at())

    def may_read(self, changes: CursorChanges) -> bool:
        """May the cursor read entries that were never delivered? Not while it is blocked (4.5)."""
        cursor = changes.cursor
        return not cursor.is_blocked_by_broker and (not cursor.is_blocked or self.may_unblock(changes))

    def reply(
        self, request: Request, key: CursorKey | None = None, *, error: str | None = None, text: str | None = None
    ) -> None:
        """Answer *request*: done, or refused with an error's name and text; no answer without an id."""
        if not request.request_id:
            return
        self.facts.append(reply_row(request, key and key.topic_id, error=error, text=text))

    def refuse(self, request: Request, refused: Exception, consumer: str | None) -> None:
        """Note that *request* of *consumer* was refused."""
        self.refusals.append(
            Refusal(
                request.kind,
                type(refused).__name__,
                str(refused),
                request.topic,
                request.partition,
                request.subscription,
                consumer,
            )
        )
