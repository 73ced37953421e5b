"""List, count, cancel and reschedule messages that wait for their deliver time (0.33)."""

import datetime
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from pulsar_spark.admin.selection import KEYS, Found, Selection, aware, selection
from pulsar_spark.client.sending.send_arguments import deliver_at_ms
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.link.requester import Requester
from pulsar_spark.protocol.acknowledgement.packing import named
from pulsar_spark.protocol.acknowledgement.positions import distinct
from pulsar_spark.protocol.delays.delays import CANCEL, DELIVER_AT_MS, POSITIONS
from pulsar_spark.protocol.delays.instants import deliver_millis, shown_time
from pulsar_spark.protocol.suggestions import no_subscription
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.topic_name import check_subscription
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.entries.entries import CACHED_BYTES, EntryReader
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic, resolve_topic
from pulsar_spark.views.scheduled import Scheduled, read_scheduled

MOST_POSITIONS = 10_000
"""The most positions that one request names."""
MOST_REQUESTS = 1000
"""The most requests in one commit and round. Only ten if the first one names many positions in its properties."""


class ScheduledMessages:
    """Part of ``Admin`` for scheduled messages. *topic* may be a partition; *select* are
    the arguments of :func:`selection`."""

    layout: Layout
    _requester: Requester

    def scheduled(
        self, topic: str, subscription: str | None = None, *, with_payload: bool = False, **select
    ) -> Iterator[dict]:
        """Iterate over messages that wait for their deliver time, for *subscription* or for any subscription. They are
        in order of partition and deliver time.

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

        The result has ``selected`` and ``done``, each the number of messages by subscription. Messages selected and not
        done were delivered or acknowledged meanwhile. The history keeps the *reason*. *tell* is called with the number
        of messages requested so far. With *dry_run* nothing is requested.
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

        *to* is a datetime or milliseconds since 1970; with a past time messages are delivered at once. *by* is how much
        later each message is delivered, or earlier if negative. The other arguments, *select*, *every*, *reason*,
        *dry_run* and *tell*, are as for :meth:`cancel_scheduled`.
        """
        if (to is None) == (by is None):
            raise InvalidConfiguration("no new time for the messages: give either a time, or how much later")
        chosen = _chosen("moved", selection(**select), every)
        if isinstance(to, datetime.datetime):
            to = deliver_millis(aware(to))
        to_or_by = deliver_at_ms(to, by, 0) or 0

        def new_times(times: np.ndarray) -> np.ndarray:
            if by is None:
                return np.full(len(times), to_or_by)
            times_ms = -(-times // 1000)  # rounded up, so that none is early
            return np.array([deliver_at_ms(each + to_or_by, None, 0) for each in times_ms.tolist()], np.int64)

        if by is not None and to_or_by > 0:  # a latest time beyond 64 bits is refused before any message is moved
            for found in self._look(topic, subscription, chosen):
                new_times(found.scheduled.times[-1:])
        properties = {} if reason is None else {"reason": reason}
        return self._ask_of(self._look(topic, subscription, chosen), "reschedule", new_times, properties, dry_run, tell)

    def _look(self, topic: str, subscription: str | None, chosen: Selection) -> Iterator[Found]:
        """The waiting messages that are *chosen*, of *subscription* or of all, in parts, by partition."""
        if subscription is not None:
            check_subscription(subscription)
        topic_, partitions = resolve_topic(self.layout, topic)
        layout = layout_of(self.layout, topic_.name)
        latest, index = read_latest(layout), LedgerIndex(layout)
        known = {key.subscription for key in latest.cursors if key.topic_id == topic_.topic_id}
        if subscription is not None and subscription not in known:
            raise no_subscription(str(topic_.name), subscription, known)
        positions = _positions_of(index, topic_, partitions, chosen.ids) if chosen.ids else {}
        reader, now = EntryReader(CACHED_BYTES), now_micros()
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
        """Request *kind* of all entries in *parts*; *new_times* turns their deliver times (microseconds) into the new
        ones (milliseconds), which only a reschedule uses."""
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
    """*chosen*; :class:`InvalidConfiguration` if it is all messages without *every*."""
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
    topic: Topic, subscription: str, entries: Scheduled, kind: str, times: np.ndarray, properties: dict[str, str]
) -> list[dict]:
    """The requests for *entries*, at least one for each new deliver time in *times*."""
    where = {"topic": str(topic.name), "partition": entries.partition, "subscription": subscription}
    rows = []
    for time in distinct(times).tolist():
        to_time = {} if kind == "ack" else {DELIVER_AT_MS: str(max(int(time), 0))}
        positions = np.sort(entries.positions[times == time])
        for at in range(0, len(positions), MOST_POSITIONS):
            part = positions[at : at + MOST_POSITIONS]
            ends = {"first": int(part[0]), "last": int(part[-1])}
            is_dense = part[-1] - part[0] == len(part) - 1
            only = {} if is_dense else {POSITIONS: named(part)}
            rows.append({"kind": kind, **where, **ends, "properties": to_time | properties | only})
    return rows


def _commits(rows: list[dict]) -> Iterator[list[dict]]:
    """*rows* in parts, each for one commit. A long text of positions makes the parts small."""
    size = 10 if len(rows[0]["properties"].get(POSITIONS, "")) > MOST_REQUESTS else MOST_REQUESTS
    for at in range(0, len(rows), size):
        yield rows[at : at + size]
