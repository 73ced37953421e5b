"""Messages that wait for their deliver time: list, cancel (0.33), reschedule (ours)."""

import datetime
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from pulsar_spark.admin.selection import KEYS, Found, Selection, aware, selection, shown_time
from pulsar_spark.client.sending.send_arguments import deliver_at_ms
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.link.requester import Requester
from pulsar_spark.protocol.acknowledgement.packing import named
from pulsar_spark.protocol.delays.delays import CANCEL, DELIVER_AT_MS, POSITIONS
from pulsar_spark.protocol.delays.instants import deliver_millis, to_micros
from pulsar_spark.protocol.suggestions import no_subscription
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.topic_name import check_subscription
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.entries.entries import CACHED_BYTES, EntryReader
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic, resolve_topic
from pulsar_spark.views.scheduled import Scheduled, read_scheduled

MOST_POSITIONS = 10_000
"""In one request."""
MOST_REQUESTS = 1000
"""The most requests in one commit and round; ten if they name thousands of positions each."""


class ScheduledMessages:
    """Part of ``Admin`` for scheduled messages. *topic* may be a partition; *select* are
    the arguments of :func:`selection`."""

    layout: Layout
    _requester: Requester

    def scheduled(
        self, topic: str, subscription: str | None = None, *, with_payload: bool = False, **select
    ) -> Iterator[dict]:
        """Iterate over messages that wait for their deliver time on *subscription*, or on any, by partition and deliver
        time.

        Payloads are read only with *with_payload*. *select* keeps messages that are due at ``since`` or later and
        before ``until`` (datetimes), with one of the ``keys``, all of the ``properties`` and one of the ``ids``; each
        is optional.
        """
        columns = ("payload", *KEYS) if with_payload else KEYS
        for found in self._look(topic, subscription, selection(**select)):
            yield from found.rows(columns)

    def count_scheduled(self, topic: str, subscription: str | None = None, **select) -> dict:
        """Count waiting messages in total and by subscription, with the first and last deliver time; *select* as for
        :meth:`scheduled`."""
        entries, waits = 0, dict[str, int]()
        first: int | None = None
        last: int | None = None
        for found in self._look(topic, subscription, selection(**select)):
            times = found.scheduled.times
            first = int(times[0]) if first is None else min(first, int(times[0]))
            last = int(times[-1]) if last is None else max(last, int(times[-1]))
            entries += len(times)
            for name, flags in found.scheduled.waits.items():
                waits[name] = waits.get(name, 0) + int(flags.sum())
        ends = {"firstDueTime": first, "lastDueTime": last}
        shown = {name: None if time is None else shown_time(time) for name, time in ends.items()}
        return {"entries": entries, **shown, "subscriptions": {name: count for name, count in waits.items() if count}}

    def cancel_scheduled(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        every: bool = False,
        reason: str | None = None,
        dry_run: bool = False,
        tell: Callable[[int], None] = lambda entries: None,
        **select,
    ) -> dict:
        """Cancel the delivery of waiting messages: those that match *select* (see :meth:`scheduled`), or all of the
        topic with *every*.

        The result counts ``selected`` and ``done`` by subscription; the difference was delivered or acknowledged
        meanwhile. The history keeps the *reason*. *tell* is called with the number of messages requested so far. With
        *dry_run* nothing is requested.
        """
        chosen = _chosen("cancelled", selection(**select), every)
        properties = {CANCEL: "true", "receipt": "true"} | ({} if reason is None else {"reason": reason})
        return self._ask_of(
            self._look(topic, subscription, chosen),
            "ack",
            lambda times: np.zeros(len(times)),
            properties,
            dry_run,
            tell,
        )

    def reschedule(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        to: datetime.datetime | int | None = None,
        by: datetime.timedelta | None = None,
        every: bool = False,
        reason: str | None = None,
        dry_run: bool = False,
        tell: Callable[[int], None] = lambda entries: None,
        **select,
    ) -> dict:
        """Change the deliver time of waiting messages.

        *to* is a datetime or milliseconds since 1970; a past time means at once. *by* moves each message by this much,
        later or earlier. *select*, *every*, *reason* and *tell* are as for :meth:`cancel_scheduled`.
        """
        if (to is None) == (by is None):
            raise InvalidConfiguration("no new time for the messages: give either a time, or how much later")
        chosen = _chosen("moved", selection(**select), every)
        if isinstance(to, datetime.datetime):
            to = deliver_millis(aware(to))
        at = deliver_at_ms(to, by, 0) or 0

        def new_times(times: np.ndarray) -> np.ndarray:
            if by is None:
                return np.full(len(times), at)
            return np.array([deliver_at_ms(each + at, None, 0) for each in (-(-times // 1000)).tolist()], np.int64)

        if by is not None and at > 0:  # refused before any is moved
            for found in self._look(topic, subscription, chosen):
                new_times(found.scheduled.times[-1:])
        properties = {} if reason is None else {"reason": reason}
        return self._ask_of(self._look(topic, subscription, chosen), "reschedule", new_times, properties, dry_run, tell)

    def _look(self, topic: str, subscription: str | None, chosen: Selection) -> Iterator[Found]:
        if subscription is not None:
            check_subscription(subscription)
        topic_, partitions = resolve_topic(self.layout, topic)
        layout = layout_of(self.layout, topic_.name)
        latest, index = read_latest(layout), LedgerIndex(layout)
        known = {key.subscription for key in latest.cursors if key.topic_id == topic_.topic_id}
        if subscription is not None and subscription not in known:
            raise no_subscription(str(topic_.name), subscription, known)
        positions = _positions_of(index, topic_, partitions, chosen.ids) if chosen.ids else {}
        reader, now = EntryReader(CACHED_BYTES), to_micros(datetime.datetime.now(datetime.UTC))
        for partition in partitions:
            wanted = positions.get(partition, set()) if chosen.ids else None
            window = chosen.window(now)
            parts = read_scheduled(
                latest, index, topic_, partition, window, subscription=subscription, positions=wanted
            )
            for part in parts:
                found = Found(index, reader, topic_, part)
                if chosen.keys or chosen.properties:
                    found = found.that_fit(chosen)
                if len(found.scheduled):
                    yield found

    def _ask_of(
        self,
        parts: Iterable[Found],
        kind: str,
        new_times: Callable[[np.ndarray], np.ndarray],
        properties: dict[str, str],
        dry_run: bool,
        tell: Callable[[int], None],
    ) -> dict:
        """Request *kind* for each entry, with its new deliver time in milliseconds if it has one."""
        selected, done, requested = dict[str, int](), dict[str, int](), 0
        for found in parts:
            for name, flags in found.scheduled.waits.items():
                entries = found.scheduled.part(flags)
                if not len(entries):
                    continue
                selected[name] = selected.get(name, 0) + len(entries)
                if not dry_run:
                    rows = _requests(found.topic, name, entries, kind, new_times(entries.times), properties)
                    for together in _commits(rows):
                        replies = self._requester.ask(together)
                        done[name] = done.get(name, 0) + sum(int(reply.text or 0) for reply in replies)
                requested += len(entries)
                tell(requested)
        return {"selected": selected, "done": done, "isDryRun": dry_run}


def _chosen(what: str, chosen: Selection, every: bool) -> Selection:
    if chosen.is_all and not every:
        raise InvalidConfiguration(
            f"no messages selected to be {what}: give times, keys, properties or ids, or --all (in Python every=True)"
        )
    return chosen


def _positions_of(
    index: LedgerIndex, topic: Topic, partitions: list[int], ids: Iterable[MessageId]
) -> dict[int, set[int]]:
    """Positions of message ids, by partition; :class:`InvalidMessage` for an id of another topic."""
    found: dict[int, set[int]] = {}
    for each in ids:
        partition = each.partition() if topic.partitions else -1
        place = None
        if partition in partitions:
            place = index.find(topic.topic_id, partition, each.ledger_id(), each.entry_id())
        if place is None:
            raise InvalidMessage(f"topic {str(topic.name)!r} has no message {each}, or no broker has seen it yet")
        found.setdefault(partition, set()).add(place[0])
    return found


def _requests(
    topic: Topic, subscription: str, entries: Scheduled, kind: str, times: np.ndarray, given: dict[str, str]
) -> list[dict]:
    where = {"topic": str(topic.name), "partition": entries.partition, "subscription": subscription}
    rows = []
    for time in np.unique(times).tolist():
        properties = given if kind == "ack" else {DELIVER_AT_MS: str(max(int(time), 0)), **given}
        positions = np.sort(entries.positions[times == time])
        for at in range(0, len(positions), MOST_POSITIONS):
            part = positions[at : at + MOST_POSITIONS]
            ends = {"first": int(part[0]), "last": int(part[-1])}
            names = {} if part[-1] - part[0] == len(part) - 1 else {POSITIONS: named(part)}
            rows.append({"kind": kind, **where, **ends, "properties": properties | names})
    return rows


def _commits(rows: list[dict]) -> Iterator[list[dict]]:
    size = 10 if len(rows[0]["properties"].get(POSITIONS, "")) > MOST_REQUESTS else MOST_REQUESTS
    for at in range(0, len(rows), size):
        yield rows[at : at + size]
