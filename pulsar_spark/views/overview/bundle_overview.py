"""The part of an overview that one bundle serves."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CURSOR_COUNTERS, CursorKey
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.views.activity import WINDOW_SECONDS, read_activity, round_time
from pulsar_spark.views.backlog import Unacked
from pulsar_spark.views.overview.cursor_state import CursorState, read_cursor
from pulsar_spark.views.overview.errors import Error, Errors, count_waiting_letters
from pulsar_spark.views.overview.followed_rows import FollowedRows
from pulsar_spark.views.overview.published import Place, PublishedIndex
from pulsar_spark.views.overview.rates import Rates
from pulsar_spark.views.overview.rounds import round_state
from pulsar_spark.views.overview.values import (
    NO_BROKER,
    BrokerState,
    ConsumerState,
    RoundState,
    SubscriptionState,
    TopicState,
)

_MOST_TIMES = 10_000
_NOTHING = Unacked()


class BundleOverview:
    """Follows the rows of one bundle; :meth:`catch_up` comes before all else."""

    def __init__(self, layout: Layout, window_seconds: float):
        self._layout, self._rows, self._rates = layout, FollowedRows(), Rates(window_seconds)
        self._published, self._ledgers = PublishedIndex(layout), LedgerIndex(layout)
        self._lease = BundleLease(layout, "")
        self._states: dict[CursorKey, CursorState] = {}
        self._until: dict[CursorKey, int] = {}
        """When time alone changes a state (microseconds)."""
        self._values: dict[CursorKey, tuple[tuple, SubscriptionState]] = {}
        """With what may change them although no row did."""
        self._topics: dict[Place, tuple[dict, tuple, TopicState]] = {}
        self._round_times: dict[int, datetime | None] = {}
        self._has_begun = False

    def catch_up(self, now: datetime) -> None:
        """Read what is new; *now* is the time of the look."""
        rows = self._rows
        rows.catch_up(self._layout.broker_table(CURSOR_LEDGER.name))
        since = now - timedelta(seconds=WINDOW_SECONDS)
        published = self._published.catch_up(since)  # after the rows, so that it has all their positions
        if len(self._round_times) > _MOST_TIMES:
            self._round_times.clear()
        self._round_times.update((row["round"], row["round_time"]) for row in rows.rounds)
        self._read_changed(to_micros(now))
        if not self._has_begun:
            self._rates.begin(since, read_activity(self._layout, now), published)
            self._has_begun = True
        self._rates.look(now)

    def _read_changed(self, now: int) -> None:
        rows, states, rates = self._rows, self._states, self._rates
        if rows.begins_anew:
            for known in (states, self._until, self._values, self._topics, rates):
                known.clear()
            changed = set(rows.cursors)
            rows.changed_topics.update(topic_id for topic_id, _ in rows.topics)
        else:
            changed = rows.changed_cursors
            if rows.changed_topics:
                changed.update(key for keys in (states, rows.cursors) for key in keys if key[0] in rows.changed_topics)
            changed.update(key for key, until in self._until.items() if until <= now)
        for key in changed:
            self._read_cursor(key, now)
        for place in [place for place in self._topics if place[0] in rows.changed_topics]:
            del self._topics[place]
            if place not in rows.topics:
                rates.drop(place)
        for place in [place for place in rows.topics if place[0] in rows.changed_topics]:
            rates.set(place, (self._published[place].messages, self._published[place].bytes))
        rows.changed_cursors, rows.changed_topics, rows.begins_anew = set(), set(), False

    def _read_cursor(self, key: CursorKey, now: int) -> None:
        rows, rates = self._rows, self._rates
        self._values.pop(key, None)
        self._until.pop(key, None)
        before = self._states.pop(key, None)
        for row in before.consumers if before else ():
            if row["consumer_id"] not in rows.consumers.get(key, {}):
                rates.drop((key, row["consumer_id"]))
        if key not in rows.cursors:
            rates.drop(key)
            return
        state = self._states[key] = read_cursor(rows, key, self._ledgers, self._published[key[:2]], now)
        if state.until is not None:
            self._until[key] = state.until
        rates.set(key, tuple(rows.cursors[key][name] or 0 for name in CURSOR_COUNTERS))
        for row in state.consumers:
            rates.set((key, row["consumer_id"]), tuple(row[name] or 0 for name in CURSOR_COUNTERS[:2]))

    def subscriptions(
        self, now: datetime, is_its: Callable[[str], bool], *, is_served: bool
    ) -> Iterator[SubscriptionState]:
        """Those of the topics of which *is_its* holds, on each partition."""
        errors, waiting = Errors(self._rows), count_waiting_letters(self._rows)
        rates_of, cursors, has_errors = self._rates.of, self._rows.cursors, bool(errors)
        rates_in = {place: rates_of(place)[0] for place in self._rows.topics}
        for key, state in self._states.items():
            topic, known = cursors[key]["topic"], self._values.get(key)
            if not is_its(topic):
                continue
            rates, rate_in = rates_of(key), rates_in.get(key[:2], 0.0)
            letters, error = waiting.get(key, 0), errors.of_cursor(topic, key) if has_errors else None
            blocked = error.kind if error else state.blocked
            if not (error or is_served) and state.backlog > state.unacked[None].entries:
                blocked = NO_BROKER
            changing = rates, rate_in, letters, error, blocked
            if known is None or known[0] != changing or known[1].consumers:
                known = self._values[key] = changing, self._value(now, key, state, *changing)
            elif known[1].oldest_publish_time is not None:
                age = _seconds(known[1].oldest_publish_time, now)
                known = self._values[key] = changing, known[1]._replace(backlog_age_seconds=age)
            yield known[1]

    def _value(
        self,
        now: datetime,
        key: CursorKey,
        state: CursorState,
        rates: tuple,
        rate_in: float,
        waiting: int,
        error: Error | None,
        blocked: str | None,
    ) -> SubscriptionState:
        cursor, topic = self._rows.cursors[key], self._rows.topics.get(key[:2])
        delivered, redelivered, acknowledged, dead = self._rates.counters(key)
        out, again, done, died = rates
        return SubscriptionState(
            topic=cursor["topic"],
            partition=key.partition,
            subscription=key.subscription,
            subscription_type=cursor["subscription_type"],
            backlog=state.backlog,
            delayed=state.delayed,
            oldest_publish_time=state.oldest_publish_time,
            backlog_age_seconds=_seconds(state.oldest_publish_time, now),
            unacked=state.unacked[None].messages,
            oldest_unacked_seconds=self._age_of(state.unacked[None], now),
            delivered=delivered,
            redelivered=redelivered,
            acknowledged=acknowledged,
            dead=dead,
            waiting_letters=waiting,
            letterless=self._rows.letterless[key]["msg_out_counter"] if key in self._rows.letterless else 0,
            rate_in=rate_in,
            rate_out=out,
            rate_redelivered=again,
            rate_acknowledged=done,
            rate_dead=died,
            consumers=tuple(self._consumer(now, key, row, state) for row in state.consumers),
            blocked=blocked,
            error=error.text if error else state.error,
            mark_delete_position=cursor["mark_delete_position"],
            read_position=cursor["read_position"],
            end_position=topic["end_position"] if topic else 0,
        )

    def _consumer(self, now: datetime, key: CursorKey, row: dict, state: CursorState) -> ConsumerState:
        unacked = state.unacked.get(row["consumer_id"], _NOTHING)
        delivered, redelivered = self._rates.counters((key, row["consumer_id"]))
        out, again = self._rates.of((key, row["consumer_id"]))
        return ConsumerState(
            consumer_id=row["consumer_id"],
            consumer_name=row["consumer_name"],
            client_id=row["client_id"],
            priority_level=row["priority_level"] or 0,
            permits=row["permits"] or 0,
            unacked=unacked.messages,
            oldest_unacked_seconds=self._age_of(unacked, now),
            delivered=delivered,
            redelivered=redelivered,
            rate_out=out,
            rate_redelivered=again,
            is_active=row["is_active"],
            is_blocked=bool(row["is_blocked"]),
            lease_time=row["lease_time"],
        )

    def topics(self, is_its: Callable[[str], bool]) -> Iterator[TopicState]:
        """The partitions of the topics of which *is_its* holds."""
        errors, subscriptions = Errors(self._rows), Counter(key[:2] for key in self._states)
        for place, row in self._rows.topics.items():
            if is_its(row["topic"]):
                changing = self._rates.of(place), subscriptions[place], errors.of_topic(row["topic"], place[0])
                known = self._topics.get(place)
                if known is None or known[0] is not row or known[1] != changing:
                    known = self._topics[place] = row, changing, self._topic(place, row, *changing)
                yield known[2]

    def _topic(
        self, place: Place, row: dict, rates: tuple[float, ...], subscriptions: int, error: Error | None
    ) -> TopicState:
        published = self._published[place]
        return TopicState(
            topic=row["topic"],
            partition=place[1],
            topic_id=place[0],
            entries=row["end_position"] or 0,
            first_position=row["first"] or 0,
            messages=published.messages,
            bytes=published.bytes,
            rate_in=rates[0],
            throughput_in=rates[1],
            subscriptions=subscriptions,
            error=error.text if error else None,
            error_kind=error.kind if error else None,
        )

    def take_rounds(self) -> list[RoundState]:
        """The rounds since this was last called, at most ``MOST_ROUNDS``."""
        found = [round_state(self._layout.bundle, row) for row in self._rows.rounds]
        self._rows.rounds.clear()
        return found

    def broker(self) -> BrokerState:
        holder, row = self._lease.holder(), self._rows.round_row or {}
        return BrokerState(
            bundle=self._layout.bundle,
            broker_id=holder.broker_id if holder else row.get("broker_id"),
            host=holder.host if holder else None,
            pid=holder.pid if holder else None,
            is_serving=holder is not None,
            epoch=row.get("epoch") or 0,
            round=self._rows.round,
            round_time=row.get("round_time"),
        )

    def _age_of(self, unacked: Unacked, now: datetime) -> float | None:
        """The time since the oldest delivery among *unacked*."""
        number, times = unacked.oldest_round, self._round_times
        if number is None:
            return None
        if number not in times:
            times[number] = round_time(self._layout, number)
        return _seconds(times[number], now)


def _seconds(then: datetime | None, now: datetime) -> float | None:
    return None if then is None else round(max((now - then).total_seconds(), 0.0), 3)
