"""Samples of activity for the table ``activity``: once a minute, the state of what changed, from the broker's
memory."""

from collections import deque
from collections.abc import Iterable

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.changed import Changed
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.protocol.entries.backlog import count_backlog, first_ready
from pulsar_spark.protocol.entries.entry_codes import WAITING_CODE
from pulsar_spark.storage.chunks.chunk_groups import parts_ahead
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CURSOR_COUNTERS, CursorKey

MINUTE = 60_000_000
MOST_MINUTES = 60
"""Samples of so many minutes are kept while the table cannot be written."""


class Samples:
    """Collects the samples of a broker whose *bundle* is loaded; it hears of each round before and after."""

    def __init__(self, bundle: Bundle):
        self._minute: int | None = bundle.now.wall // MINUTE
        self._known: set[CursorKey] = set(bundle.cursors)
        bundle.changed.note(bundle.cursors, bundle.topics)
        self.waiting: deque[list[dict]] = deque(maxlen=MOST_MINUTES)
        """Rows to append, by minute."""

    def before_round(self, bundle: Bundle, wall: int) -> None:
        """Take the samples of the last minute with changes if it is over at *wall* (microseconds)."""
        if self._minute is not None and wall // MINUTE > self._minute:
            self.take(bundle)

    def after_round(self, bundle: Bundle, wall: int) -> None:
        """Note that the round at *wall* changed something. Cursors that it made get a sample with zero counters."""
        if self._minute is None and (bundle.changed.cursors or bundle.changed.topics):
            self._minute = wall // MINUTE
        there = (key for key in bundle.changed.cursors - self._known if key in bundle.cursors)
        new = [key for key in there if bundle.cursors[key].topic in bundle.topics]
        self._known.update(new)
        if new:
            rows = (_of_cursor(bundle, bundle.cursors[key], wall) for key in new)
            counters = dict.fromkeys(CURSOR_COUNTERS, 0)
            self._append(bundle, wall // MINUTE - 1, [row | counters for row in rows])

    def take(self, bundle: Bundle) -> None:
        """Take the samples of what changed since they were last taken."""
        minute, self._minute = self._minute, None
        topics = [bundle.topics[name] for name in bundle.changed.topics if name in bundle.topics]
        keys = {key for key in bundle.changed.cursors if key in bundle.cursors}
        keys.update(cursor.key for state in topics for cursor in bundle.cursors.of_topic(state.topic.topic_id))
        cursors = [bundle.cursors[key] for key in keys if bundle.cursors[key].topic in bundle.topics]
        bundle.changed = Changed()
        self._known &= set(bundle.cursors)
        if minute is not None:
            until = (minute + 1) * MINUTE
            rows = [row for state in topics for row in _of_topic(state)]
            rows += [_of_cursor(bundle, cursor, until) for cursor in cursors]
            self._append(bundle, minute, rows)

    def _append(self, bundle: Bundle, minute: int, rows: Iterable[dict]) -> None:
        found = [row | {"minute_time": minute * MINUTE, "round": bundle.round} for row in rows]
        if found:
            self.waiting.append(found)


def _of_topic(state: TopicState) -> list[dict]:
    """One row per partition."""
    return [
        dict(
            topic=str(state.topic.name),
            topic_id=state.topic.topic_id,
            partition=partition,
            msg_in_counter=_published(state, partition),
        )
        for partition in state.topic.partition_indexes
    ]


def _published(state: TopicState, partition: int) -> int:
    return state.ledgers(partition).messages_before(state.end_position(partition))


def _of_cursor(bundle: Bundle, cursor: Cursor, now: int) -> dict:
    """One row per cursor, as of *now*, by the machine's clock."""
    state, entries, partition = bundle.topics[cursor.topic], cursor.entries, cursor.key.partition
    end = state.end_position(partition)
    backlog, oldest = count_backlog(entries, end, now), first_ready(entries, end)
    parts = parts_ahead(entries, cursor.read_position, cursor.chunked.groups, end) if cursor.chunked else 0
    delayed = backlog.delayed + entries.count([WAITING_CODE], 0, end - 1)
    counted = backlog.entries - parts
    run = None
    if oldest is not None and counted > delayed:
        run = next(state.ledgers(partition).overlapping(oldest, oldest), None)
    return dict(
        cursor.key._asdict(),
        topic=cursor.topic,
        msg_in_counter=_published(state, partition),
        **{name: getattr(cursor, name) for name in CURSOR_COUNTERS},
        backlog=counted,
        delayed=delayed,
        unacked=cursor.unacked.total(),
        consumers=len(cursor.consumers),
        oldest_publish_time=run and run.min_publish_time,
    )
