"""The backlog of a cursor, counted from the map of its entries (3.28)."""

from typing import NamedTuple

from pulsar_spark.protocol.acknowledgement.cursor import REPLAY
from pulsar_spark.protocol.entries.entry_codes import PART, WAITING
from pulsar_spark.protocol.entries.entry_map import EntryMap, states_in


class Backlog(NamedTuple):
    """Unacknowledged entries, and those among them that wait for a future time."""

    entries: int
    delayed: int


def count_backlog(entries: EntryMap, end: int, now: int) -> Backlog:
    """The entries before position *end* that are neither acknowledged nor parts of chunked messages. ``delayed`` counts
    those that come again after *now* (microseconds), not those that wait for their deliver time.

    >>> entries = EntryMap(3)
    >>> entries.set_span(5, 5, entries.codes.code(entries.codes.state(1)))
    >>> _ = entries.take_changes()
    >>> count_backlog(entries, 10, 0)
    Backlog(entries=5, delayed=0)
    """
    done, delayed = set(entries.codes.acknowledged), 0
    counted = end - entries.mark_delete - 1
    for code, state, count in states_in(entries):
        if code in done or state.status == PART:
            counted -= count
        elif state.status == REPLAY and (state.due_time or 0) > now:
            delayed += count
    return Backlog(counted, delayed)


def ready_codes(entries: EntryMap) -> list[int]:
    """The codes of entries that are neither acknowledged nor wait for their deliver time."""
    done = set(entries.codes.acknowledged)
    return [code for code, state in entries.codes.known() if code not in done and state.status not in (PART, WAITING)]


def first_ready(entries: EntryMap, end: int) -> int | None:
    """The first position before *end* of an entry that :func:`ready_codes` means, or that is unread."""
    known = min(entries.end, end)
    found = entries.first_of(ready_codes(entries), entries.mark_delete + 1, known - 1)
    if found is None:
        found = max(entries.mark_delete + 1, known)
    return found if found < end else None
