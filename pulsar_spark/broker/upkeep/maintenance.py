"""Time to live, backlog quotas and the end of idle subscriptions, checked every ``ttl_check_seconds`` in a round before
the plan (semantics 3.29-3.31). A topic above its quota is checked every second."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import merge

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.chunks.chunk_walk import expire_units, release_until
from pulsar_spark.broker.cursors.members import Members
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import delayed_ranges, honours_delays
from pulsar_spark.broker.delays.waiting import WINDOW, pass_unread
from pulsar_spark.broker.requests.drafts import CursorChanges, RoundDraft
from pulsar_spark.broker.round.isolation import isolated, of_topic
from pulsar_spark.protocol.acknowledgement.cursor import REPLAY
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.protocol.acknowledgement.positions import ranges_of as spans_of
from pulsar_spark.protocol.delays.instants import from_micros
from pulsar_spark.protocol.entries.entry_codes import WAITING
from pulsar_spark.protocol.policies.expiry import (
    Activity,
    Delayed,
    Stored,
    backlog_bytes,
    evicted_up_to,
    expired,
    has_expired,
    holds_producers,
    is_spared,
)
from pulsar_spark.protocol.policies.policies import BACKLOG_EXCEEDED, CHECKED, EVICT, policy_owners
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.ledgers.publish_times import is_published_before, last_published_before

SECOND = 1_000_000
HELD_CHECK_SECONDS = 1


def maintain(bundle: Bundle, draft: RoundDraft) -> None:
    """Check due topics, and set ``bundle.maintenance_due``; None for never."""
    due = []
    for state in _topics_to_check(bundle):
        if bundle.set_aside.topic(str(state.topic.name), state.topic.topic_id) is None:
            with isolated(of_topic(state)):
                due.append(_check_in_time(bundle, draft, state))
    for name, is_exceeded in _exceeded(bundle).items():
        if is_exceeded and name not in bundle.topics:
            _set_exceeded(bundle, draft, name, False)
    bundle.maintenance_due = min((when for when in due if when is not None), default=None)


def _topics_to_check(bundle: Bundle) -> list[TopicState]:
    owners = {owner for (owner, name), value in bundle.policies.items() if name in CHECKED and value != "0"}
    owners |= {owner for owner, is_exceeded in _exceeded(bundle).items() if is_exceeded}
    if not owners:
        return []
    return [state for name, state in bundle.topics.items() if not owners.isdisjoint(policy_owners(name))]


def _exceeded(bundle: Bundle) -> dict[str, bool]:
    return {owner: value == "true" for (owner, name), value in bundle.policies.items() if name == BACKLOG_EXCEEDED}


def _check_in_time(bundle: Bundle, draft: RoundDraft, state: TopicState) -> int | None:
    """Check the topic if it is due; returns when next, None without a policy."""
    name = str(state.topic.name)
    ttl, size, seconds, idle_minutes, every = (
        bundle.policy(name, policy) for policy in (*CHECKED, "ttl_check_seconds")
    )
    if state.checked_at is None or state.checked_at + _interval(bundle, name, every) <= draft.now:
        state.checked_at = draft.now
        if idle_minutes:
            _delete_idle(bundle, draft, state, idle_minutes)
        cursors = bundle.cursors.of_topic(state.topic.topic_id)
        if ttl:
            for cursor in cursors:
                _expire(bundle, draft, state, cursor, draft.wall - ttl * SECOND)
        quota_policy = bundle.policy_text(name, "backlog_quota_policy")
        is_over = [
            _check_quota(draft, state, cursors, partition, size, seconds, quota_policy == EVICT)
            for partition in state.topic.partition_indexes
        ]
        is_exceeded = holds_producers(is_over, quota_policy)
        if is_exceeded != _exceeded(bundle).get(name, False):
            _set_exceeded(bundle, draft, name, is_exceeded)
    return state.checked_at + _interval(bundle, name, every) if ttl or size or seconds or idle_minutes else None


def _interval(bundle: Bundle, topic: str, every: int) -> int:
    return (HELD_CHECK_SECONDS if _exceeded(bundle).get(topic) else every) * SECOND


def _set_exceeded(bundle: Bundle, draft: RoundDraft, topic: str, is_exceeded: bool) -> None:
    draft.facts.append(bundle.set_policy(topic, BACKLOG_EXCEEDED, "true" if is_exceeded else "false"))


def _delete_idle(bundle: Bundle, draft: RoundDraft, state: TopicState, minutes: int) -> None:
    members, subscriptions = Members(bundle, draft), defaultdict(list)
    for cursor in bundle.cursors.of_topic(state.topic.topic_id):
        subscriptions[cursor.key.subscription].append(cursor)
    for cursors in subscriptions.values():
        activities = (
            Activity(bool(cursor.consumers), draft.now if cursor.last_active is None else cursor.last_active)
            for cursor in cursors
        )
        if has_expired(activities, minutes, draft.now):
            for cursor in cursors:
                members.delete(cursor)


def _expire(bundle: Bundle, draft: RoundDraft, state: TopicState, cursor: Cursor, dead_before: int) -> None:
    ledgers, instant = state.ledgers(cursor.key.partition), from_micros(dead_before)
    last = last_published_before(state.topic.path, ledgers, instant, cursor.mark_delete)
    if last <= cursor.mark_delete:
        return
    oldest = cursor.mark_delete + 1
    if cursor.consumers and not is_published_before(state.topic.path, ledgers, oldest, instant):
        backlog = sum(until - first + 1 for first, until in cursor.backlog(oldest, ledgers.end_position - 1))
        if is_spared(backlog):
            return
    changes = draft.changes_of(cursor)
    release_until(changes, last)
    if honours_delays(bundle, cursor):
        pass_unread(bundle, changes, last, draft.wall)
    if cursor.dues:
        dead = cursor.dues.come_due(cursor.entries, dead_before - 1, MAX_LONG).positions
        for first, until in spans_of(np.sort(dead[dead <= last])):
            changes.expire(first, until)
    for first, until in expired(cursor.mark_delete, last, _delayed(state, cursor, last), dead_before=dead_before):
        changes.expire(first, until)


def _delayed(state: TopicState, cursor: Cursor, last: int) -> Iterator[Delayed]:
    """Entries after mark-delete with a deliver time, in order, without parts of chunked messages."""
    if last <= cursor.mark_delete:
        return
    waiting = list(_waiting(cursor, last))
    elsewhere = Positions((each.first, each.last) for each in waiting)
    yield from merge(waiting, _by_deliver_time(state, cursor, last, elsewhere))


def _waiting(cursor: Cursor, last: int) -> Iterator[Delayed]:
    waits = any(cursor.replays_at()) or cursor.dues is not None
    for range_ in cursor.ranges(0, last) if waits else ():
        if range_.status == WAITING:  # those whose time is over are found by it
            yield Delayed(range_.first, range_.last, MAX_LONG)
        elif range_.status == REPLAY and range_.due_time is not None:
            yield Delayed(range_.first, range_.last, range_.due_time)


def _by_deliver_time(state: TopicState, cursor: Cursor, last: int, elsewhere: Positions) -> Iterator[Delayed]:
    for first in range(cursor.mark_delete + 1, last + 1, WINDOW):
        until = min(first + WINDOW - 1, last)
        found = delayed_ranges(state, cursor, first, until) if any(elsewhere.gaps(first, until)) else []
        if found:
            parts = state.chunks(cursor.key.partition).parts(first, until)
            others = Positions(sorted([*parts, *elsewhere]))
            for timed in found:
                yield from (Delayed(*gap, timed.due_time or 0) for gap in others.gaps(timed.first, timed.last))


def _check_quota(
    draft: RoundDraft,
    state: TopicState,
    cursors: list[Cursor],
    partition: int,
    size: int,
    seconds: int,
    is_evicting: bool,
) -> bool:
    """Is the slowest cursor above a quota? If *is_evicting*, the excess is acknowledged on all."""
    here = [cursor for cursor in cursors if cursor.key.partition == partition]
    slowest = min((cursor.mark_delete for cursor in here), default=None)
    if slowest is None or not (size or seconds):
        return False
    ledgers = state.ledgers(partition)
    too_old = (
        last_published_before(state.topic.path, ledgers, from_micros(draft.wall - seconds * SECOND), slowest)
        if seconds
        else -1
    )
    stored = runs_after(ledgers, slowest) if size else []
    is_too_big = size > 0 and backlog_bytes(stored, slowest) > size
    if is_evicting:
        for cursor in here:
            last = max(too_old, evicted_up_to(stored, cursor.mark_delete, size) if is_too_big else -1)
            if last > cursor.mark_delete:
                _evict(draft.changes_of(cursor), last)
    return is_too_big or too_old > slowest


def _evict(changes: CursorChanges, last: int) -> None:
    """Acknowledge everything up to *last*, and messages that begin there."""
    cursor = changes.cursor
    changes.expire(cursor.mark_delete + 1, last)
    release_until(changes, last)
    if cursor.chunked:
        firsts, lasts = cursor.chunked.groups.units(last + 1, cursor.chunked.groups.last_position)
        expire_units(changes, lasts[firsts <= last])


def runs_after(ledgers: PartitionLedgers, position: int) -> list[Stored]:
    """What is stored after *position*, by run, with its share of a file's bytes."""
    runs = (
        list(ledgers.overlapping(position + 1, ledgers.end_position - 1)) if position + 1 < ledgers.end_position else []
    )
    messages: Counter[tuple[int, str]] = Counter()
    for run in runs:
        messages[run.ledger_id, run.path] += run.entries * run.batch_size
    return [
        Stored(
            run.first_position,
            run.last_position,
            run.bytes * run.entries * run.batch_size // messages[run.ledger_id, run.path],
        )
        for run in runs
    ]
