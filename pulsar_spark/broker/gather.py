"""From drafts to the rows a round is planned from, and to which pages it rewrites.

A cursor takes part when something was asked of its ranges, an entry of it falls due, or a consumer has permits and
there is something to give. Which of its ranges are planned is said in ``concerned``.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.clock import Instant
from pulsar_spark.broker.concerned import Concerned, concerned_ranges, effective_returns, has_replays, is_due
from pulsar_spark.broker.drafts import CursorDraft, RoundDraft
from pulsar_spark.broker.isolation import isolated, of_cursor
from pulsar_spark.broker.state import Consumer, Cursor
from pulsar_spark.broker.unread_slices import delayed_unread
from pulsar_spark.protocol.cursor import PENDING, skip_unacked
from pulsar_spark.protocol.policies import UNACKED_LIMITS

MAX_ROUND_ENTRIES = 20_000_000
"""Most entries one cursor hands out in a round."""

LAPS = (0, 1)


class UnreadRun(NamedTuple):
    """Entries first..last of one batch size that were never delivered; ``due_time`` (microseconds) where they have a
    deliver time."""

    first: int
    last: int
    batch_size: int
    due_time: int | None


@dataclass
class Work:
    """What to plan: rows of transforms.round_inputs, the cursor each ``cursor`` number stands for, and which of its
    ranges they hold."""

    rows: list[dict] = field(default_factory=list)
    cursors: list[CursorDraft] = field(default_factory=list)
    concerned: list[Concerned] = field(default_factory=list)

    def only(self, numbers: Collection[int]) -> "Work":
        """The work of some of the cursors, which are numbered anew."""
        places = {number: place for place, number in enumerate(numbers)}
        return Work(
            [row | {"cursor": places[row["cursor"]]} for row in self.rows if row["cursor"] in places],
            [self.cursors[number] for number in numbers],
            [self.concerned[number] for number in numbers],
        )


def gather_work(bundle: Bundle, draft: RoundDraft) -> Work:
    """The work of a round, for all cursors that have any."""
    work = Work()
    for cursor in bundle.cursors.values():
        if not bundle.is_set_aside(cursor):
            with isolated(of_cursor(cursor)):
                _gather_cursor(bundle, draft, cursor, work)
    return work


def _gather_cursor(bundle: Bundle, draft: RoundDraft, cursor: Cursor, work: Work) -> None:
    asked = draft.cursors.get(cursor.key)
    takers = _takers(cursor, draft.now)
    has_returns = any(page.has_returns(draft.now) for page in cursor.pages)
    if (asked and asked.has_work) or has_returns or (takers and _has_candidates(bundle, cursor, draft.wall)):
        _add_cursor(bundle, draft, draft.of(cursor), takers, work)


def next_due(bundle: Bundle, now: int) -> int | None:
    """The earliest instant after *now* at which a round has something to do without being asked; None when nothing
    waits. For clocks that agree."""
    return min((due for due in next_dues(bundle, Instant(now, now)) if due is not None), default=None)


def next_dues(bundle: Bundle, now: Instant) -> tuple[int | None, int | None]:
    """The same by each of the two clocks: what waits by the broker's own, and by the machine's."""
    served = [cursor for cursor in bundle.cursors.values() if not bundle.is_set_aside(cursor)]
    own = [
        page.returns_at
        for cursor in served
        for page in cursor.pages
        if page.returns_at is not None and page.returns_at > now.own
    ]
    own += [cursor.reads_after for cursor in served if cursor.reads_after > now.own]
    own += bundle.leases.values()
    own += [instant for instant in [bundle.waiting_letters.next_due()] if instant is not None]
    own += [] if bundle.maintenance_due is None else [bundle.maintenance_due]
    wall = [
        page.replays_at
        for cursor in served
        for page in cursor.pages
        if page.replays_at is not None and page.replays_at > now.wall
    ]
    return min(own, default=None), min(wall, default=None)


def _takers(cursor: Cursor, now: int) -> list[Consumer]:
    """Consumers that may be given entries, as far as permits tell."""
    if cursor.reads_after > now:
        return []
    if cursor.is_single_active:
        active = cursor.consumers.get(cursor.active_id)
        return [active] if active and active.permits > 0 else []
    return [consumer for consumer in cursor.consumers.values() if consumer.permits > 0]


def _has_candidates(bundle: Bundle, cursor: Cursor, wall: int) -> bool:
    topic = bundle.topics.get(cursor.topic)
    if topic is None:
        return False
    if cursor.consumers and not cursor.is_single_active and not _may_take(bundle, cursor):
        return False
    replays = any(has_replays(cursor, page, wall) for page in cursor.pages)
    return replays or (
        cursor.read_position < topic.end_position(cursor.key.partition)
        and not (cursor.is_blocked or cursor.is_blocked_by_broker)
    )


def _may_take(bundle: Bundle, cursor: Cursor) -> bool:
    """Is any consumer with permits not held back by its unacknowledged messages?"""
    return any(consumer.permits > 0 and not consumer.is_blocked for consumer in cursor.consumers.values())


def _add_cursor(bundle: Bundle, draft: RoundDraft, asked: CursorDraft, takers: list[Consumer], work: Work) -> None:
    cursor, number, now = asked.cursor, len(work.cursors), draft.now
    permits = sum(consumer.permits for consumer in takers)
    unread = _unread_runs(bundle, asked, 0 if cursor.is_blocked_by_broker else min(permits, MAX_ROUND_ENTRIES))
    concerned = concerned_ranges(
        asked, now=now, wall=draft.wall, permits=permits, unread=(unread[0].first, unread[-1].last) if unread else None
    )
    elsewhere = cursor.unacked.copy()
    for held in concerned.planned:
        if held.status == PENDING:
            elsewhere[held.consumer_id] -= held.unacked_messages
    consumer_limit, subscription_limit = (
        (0, 0) if not cursor.has_unacked_limits else (bundle.policy(cursor.topic, name) for name in UNACKED_LIMITS)
    )
    asked.asked_back |= (
        asked.redelivered
        | {consumer_id for _, _, consumer_id, due in asked.returns if due <= now}
        | {held.consumer_id for held in concerned.planned if held.status == PENDING and is_due(held, now)}
    )

    def row(kind: str, first: int, last: int, **values) -> None:
        work.rows.append(dict(cursor=number, kind=kind, first=first, last=last, **values))

    row(
        "cursor",
        0,
        0,
        is_single_active=cursor.is_single_active,
        limit=subscription_limit,
        unacked_elsewhere=sum(elsewhere.values()),
        is_blocked=cursor.is_blocked,
        permits=permits,
        max_redeliver_count=cursor.max_redeliver_count,
        left=sorted(asked.left),
        redelivered=sorted(asked.redelivered),
        round=draft.number,
        now=now,
        wall=draft.wall,
    )
    for held in concerned.planned:
        work.rows.append(dict(cursor=number, kind="range", **held._asdict()))
    for first, last in asked.acks:
        if last > cursor.mark_delete:
            row("ack", max(first, cursor.mark_delete + 1), last)
    for position, (unacked, replaces) in asked.ack_sets.items():
        if position > cursor.mark_delete:
            row(
                "ack" if not unacked else "ack_set" if replaces else "batch_ack",
                position,
                position,
                ack_set=list(unacked),
            )
            if cursor.find(position) is None:
                row(
                    "unread",
                    position,
                    position,
                    batch_size=bundle.batch_size(cursor, position),
                    due_time=_deliver_time(bundle, cursor, position),
                )
    for first, last, consumer_id, due in effective_returns(asked, concerned.planned):
        row("return", first, last, consumer_id=consumer_id, due_time=due)
    for first, last, batch_size, due in unread:
        row("unread", first, last, batch_size=batch_size, due_time=due)
    for ordinal, (lap, peers, consumer) in enumerate(_turns(cursor, takers, draft.number)):
        row(
            "consumer",
            ordinal,
            ordinal,
            ordinal=ordinal,
            consumer_id=consumer.consumer_id,
            lap=lap,
            peers=peers,
            permits=consumer.permits,
            limit=consumer_limit,
            unacked_elsewhere=elsewhere.get(consumer.consumer_id, 0),
            is_blocked=consumer.is_blocked and consumer.consumer_id not in asked.asked_back,
        )
    work.cursors.append(asked)
    work.concerned.append(concerned)


def _turns(cursor: Cursor, takers: list[Consumer], round_number: int) -> list[tuple[int, int, Consumer]]:
    """(lap, peers of the level, consumer) in order of service: by priority level, twice round the level, starting one
    further each round."""
    turns = []
    for level in sorted({consumer.priority_level for consumer in takers}):
        peers = [consumer for consumer in takers if consumer.priority_level == level]
        start = round_number % len(peers)
        turns += [(lap, len(peers), consumer) for lap in LAPS for consumer in peers[start:] + peers[:start]]
    return turns


def _unread_runs(bundle: Bundle, asked: CursorDraft, most: int) -> list[UnreadRun]:
    """Runs that hold the next *most* entries never delivered (and what is acknowledged between them); those that adjoin
    and agree are one."""
    cursor = asked.cursor
    topic = bundle.topics.get(cursor.topic)
    cursor.advance_read_position()
    if topic is None or most <= 0:
        return []
    ledgers = topic.ledgers(cursor.key.partition)
    ahead = [
        (held.first, held.last)
        for page in cursor.pages[max(cursor.page_index(cursor.read_position), 0) :]
        for held in page.ranges
    ]
    ahead += [*asked.acks, *((position, position) for position in asked.ack_sets)]
    last = skip_unacked(cursor.read_position - 1, ledgers.end_position, sorted(ahead), most)
    if last < cursor.read_position:
        return []
    unread = delayed_unread(bundle, cursor, ledgers.parts(cursor.read_position, last))
    return [UnreadRun(*row) for row in zip(*(column.to_pylist() for column in unread.columns))]


def _deliver_time(bundle: Bundle, cursor: Cursor, position: int) -> int | None:
    ledgers = bundle.topics[cursor.topic].ledgers(cursor.key.partition)
    return delayed_unread(bundle, cursor, ledgers.parts(position, position))["due_time"][0].as_py()
