"""Selects messages that wait for their deliver time, and reads them."""

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.client.arguments import check_properties, check_type, checked_each
from pulsar_spark.protocol.acknowledgement.positions import distinct, ranges_of
from pulsar_spark.protocol.delays.instants import shown_time, to_micros
from pulsar_spark.protocol.topics.message_id import MAX_LONG, MessageId
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.missing import Missing
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.views.scheduled import Scheduled, Window, places_of

KEYS = ("partition_key", "properties")
_MOST_ROWS = 1000


class Selection(NamedTuple):
    """Due at *since* or later and before *until*, with one of *keys*, all *properties*, one of *ids*; each optional."""

    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = {}
    ids: tuple[MessageId, ...] = ()

    @property
    def is_all(self) -> bool:
        return not any(self)

    def window(self, now: int) -> Window:
        since = now if self.since is None else max(now, to_micros(aware(self.since)) - 1)
        return Window(since, MAX_LONG if self.until is None else to_micros(aware(self.until)) - 1)

    def fits(self, rows: pa.Table) -> np.ndarray:
        fits = np.ones(rows.num_rows, bool)
        if self.keys:
            fits &= pc.is_in(rows["partition_key"], pa.array(self.keys)).to_numpy()
        if self.properties:
            given = [dict(each or ()) for each in rows["properties"].to_pylist()]
            fits &= np.array([self.properties.items() <= each.items() for each in given], bool)
        return fits


def aware(time: datetime.datetime) -> datetime.datetime:
    """By default in this machine's zone."""
    return time if time.tzinfo else time.astimezone()


def selection(
    since: datetime.datetime | None = None,
    until: datetime.datetime | None = None,
    keys: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    ids: Iterable[MessageId] = (),
) -> Selection:
    """A :class:`Selection` from checked arguments; ValueError for invalid ones."""
    for name, time in {"since": since, "until": until}.items():
        check_type(datetime.datetime | None, time, name)
    check_properties(properties)
    names, places = checked_each(str, keys, "keys"), checked_each(MessageId, ids, "ids")
    return Selection(since, until, names, properties or {}, places)


class Found:
    """Waiting entries, and access to their messages."""

    def __init__(self, index: LedgerIndex, reader: EntryReader, topic: Topic, scheduled: Scheduled):
        self._index, self._reader, self.topic, self.scheduled = index, reader, topic, scheduled

    def that_fit(self, chosen: Selection) -> "Found":
        fits = chosen.fits(self._messages(KEYS))
        return Found(self._index, self._reader, self.topic, self.scheduled.part(fits))

    def rows(self, columns: tuple[str, ...]) -> Iterator[dict]:
        """A row for each entry, with these columns of its first message."""
        found = self.scheduled
        for at in range(0, len(found), _MOST_ROWS):
            part = Found(self._index, self._reader, self.topic, found.part(slice(at, at + _MOST_ROWS)))
            yield from part._few_rows(columns)

    def _few_rows(self, columns: tuple[str, ...]) -> Iterator[dict]:
        found = self.scheduled
        places = places_of(self._index, self.topic, found.partition, found.positions)
        messages = self._messages(columns).to_pylist()
        for at, (position, time, message) in enumerate(zip(found.positions.tolist(), found.times.tolist(), messages)):
            place = MessageId(found.partition, int(places.ledger_ids[at]), int(places.entry_ids[at]))
            row = {
                "messageId": str(place),
                "topic": str(self.topic.name.partition(found.partition)),
                "position": position,
                "dueTime": shown_time(time),
                "key": message["partition_key"],
                "properties": dict(message["properties"] or ()),
                "subscriptions": [name for name, flags in found.waits.items() if flags[at]],
            }
            yield row | ({"payload": message["payload"]} if "payload" in columns else {})

    def _messages(self, columns: tuple[str, ...]) -> pa.Table:
        """Columns of each entry's first message, in order; null if it is gone."""
        positions, topic = self.scheduled.positions, self.topic
        ascending = distinct(positions)
        blocks = []
        for run, spans in self._index.spans_of(topic.topic_id, self.scheduled.partition, ranges_of(ascending)):
            read = self._reader.read(topic.path, run, spans, columns)
            blocks += [rows.select(["position", *columns]) for rows in read if not isinstance(rows, Missing)]
        if not blocks:
            fields = [MESSAGES.schema.field(name) for name in columns]
            return pa.table([pa.nulls(len(positions), field.type) for field in fields], pa.schema(fields))
        rows = pa.concat_tables(blocks)
        there = rows["position"].to_numpy()
        at = np.searchsorted(there, positions)
        is_there = np.append(there, -1)[at] == positions
        return rows.take(pa.array(at, mask=~is_there)).select(columns)
