"""What the requests of a round ask for, sorted out by cursor, before the round is planned."""

from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.broker.facts import reply_row
from pulsar_spark.broker.state import Consumer, Cursor
from pulsar_spark.protocol.ack_set import is_empty
from pulsar_spark.protocol.positions import Positions
from pulsar_spark.storage.cursor_ledger import CursorKey
from pulsar_spark.storage.python_rows import uncollected, values_of
from pulsar_spark.table_specs import REQUESTS


class Request(NamedTuple):
    """A row of the ``requests`` table; ``properties`` as a dict. ``requests_version`` and ``row`` say where it lies, if
    it was read from there."""

    request_id: str
    kind: str
    client_id: str | None
    consumer_id: str | None
    topic: str | None
    partition: int | None
    subscription: str | None
    first: int | None
    last: int | None
    ack_set: list[int] | None
    permits: int | None
    delay_ms: int | None
    properties: dict[str, str]
    requests_version: int | None = None
    row: int | None = None

    @property
    def place(self) -> tuple[int | None, int | None]:
        return self.requests_version, self.row


_COLUMNS = Request._fields[:-2]


@uncollected()
def requests_of(rows: pa.Table, requests_version: int | None = None) -> list[Request]:
    """The requests of an Arrow table, in its order; of a whole commit where its version is given."""
    columns = {name: values_of(rows.column(name)) for name in _COLUMNS}
    columns["properties"] = [dict(pairs) if pairs else {} for pairs in columns["properties"]]
    numbers = repeat(None) if requests_version is None else range(rows.num_rows)
    return list(map(Request._make, zip(*columns.values(), repeat(requests_version), numbers)))


assert set(_COLUMNS) <= set(REQUESTS.schema.names)


class Return(NamedTuple):
    """Entries that a consumer gives back, to come again at ``due_time``; counted, unless ``is_unseen`` says that the
    application was shown none of them."""

    first: int
    last: int
    consumer_id: str
    due_time: int
    is_unseen: bool = False


class Removed(NamedTuple):
    """A consumer that is gone, and why, in a word."""

    consumer: Consumer
    why: str


@dataclass
class CursorDraft:
    """What a round does to a cursor. ``delivered_acks`` (first, last, consumer, round) is what a consumer acknowledges
    of the positions that a round delivered to it; ``tails`` (consumer, round, first) is what comes back unseen of what
    a consumer was sent: what that round delivered from place *first* on, and all of later rounds; ``axis_acks`` are
    acknowledged too, by virtual positions where there is a due lane; ``passed`` count as acknowledged from now on
    without being so, as they are of another lane or nobody's; ``ack_sets`` says what is left of batches acknowledged in
    part, by position; ``has_new_limits`` that its limits of unacknowledged messages are others than before, so that who
    is held back must be found out again; ``ranges_before``, once consumers of a Key_Shared subscription come or go,
    which hashes each owned before; ``is_rewritten`` that all its pages are to be written."""

    cursor: Cursor
    acks: Positions = field(default_factory=Positions)
    axis_acks: Positions = field(default_factory=Positions)
    passed: Positions = field(default_factory=Positions)
    ack_sets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    delivered_acks: list[tuple[int, int, str, int]] = field(default_factory=list)
    tails: list[tuple[str, int, int]] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    redelivered: set[str] = field(default_factory=set)
    has_new_limits: bool = False
    removed: list[Removed] = field(default_factory=list)
    dropped_pages: list[int] = field(default_factory=list)
    changed_consumers: set[str] = field(default_factory=set)
    is_changed: bool = False
    is_rewritten: bool = False
    ranges_before: dict[str, list[tuple[int, int]]] | None = None
    expired: int = 0
    """Entries of ``acks`` that nobody acknowledged: they were too old, or too many."""

    @property
    def has_work(self) -> bool:
        """Must ranges be planned for what was asked?"""
        return bool(
            self.acks
            or self.axis_acks
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
        """Stretches of entries of which nothing is left."""
        return [*self.acks, *((position, position) for position, left in self.ack_sets.items() if is_empty(left))]

    def expire(self, first: int, last: int) -> None:
        """Let the entries *first*..*last* be acknowledged, whom time to live or a quota ends."""
        for begin, end in self.cursor.backlog(first, last):
            self.expired += sum(until - since + 1 for since, until in self.acks.gaps(begin, end))
        self.acks.add(first, last)

    def forget_ranges(self) -> None:
        """Nothing asked so far applies: the cursor was moved."""
        self.acks, self.ack_sets, self.returns, self.left, self.redelivered = Positions(), {}, [], set(), set()
        self.axis_acks, self.passed = Positions(), Positions()
        self.delivered_acks, self.tails = [], []
        self.expired = 0


class Refusal(NamedTuple):
    """A request that was refused, for the log."""

    kind: str
    error: str
    text: str
    topic: str | None
    partition: int | None
    subscription: str | None
    consumer: str | None


class RoundResult(NamedTuple):
    """What a round did; ``is_committed`` is False where there was nothing to do, but perhaps something to refuse."""

    is_committed: bool
    delivered_messages: int = 0
    acknowledged_entries: int = 0
    letters: int = 0
    expired_entries: int = 0
    refusals: tuple[Refusal, ...] = ()


@dataclass
class RoundDraft:
    """What a round does: to each cursor, and what it answers. ``now`` is the broker's own clock, ``wall`` the machine's
    (see clock)."""

    number: int
    now: int
    wall: int
    cursors: dict[CursorKey, CursorDraft] = field(default_factory=dict)
    facts: list[dict] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def of(self, cursor: Cursor) -> CursorDraft:
        draft = self.cursors.get(cursor.key)
        if draft is None:
            draft = self.cursors[cursor.key] = CursorDraft(cursor)
        return draft

    def may_let_go(self, asked: CursorDraft) -> bool:
        """May who is held back by unacknowledged messages be let go by what is asked of the cursor, or comes back, in
        this round? The plan says."""
        return asked.has_work or any(due <= self.now for due in asked.cursor.returns_at())

    def reads(self, asked: CursorDraft) -> bool:
        """May the cursor be given what was never delivered? Limits of unacknowledged messages end new reads, and what
        comes again goes out all the same (4.5)."""
        cursor = asked.cursor
        return not cursor.is_blocked_by_broker and (not cursor.is_blocked or self.may_let_go(asked))

    def reply(
        self, request: Request, key: CursorKey | None = None, *, error: str | None = None, text: str | None = None
    ) -> None:
        """Answer *request*: done, or refused with an error's name and words. One without an id cannot be answered."""
        if not request.request_id:
            return
        self.facts.append(reply_row(request, key and key.topic_id, error=error, text=text))

    def refuse(self, request: Request, refused: Exception, consumer: str | None) -> None:
        """Note that *request* was refused, answered or not; *consumer* is the name of who asked."""
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
