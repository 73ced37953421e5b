"""Messages sent in the last minute, counted from the deliveries in its rounds."""

from collections import Counter
from datetime import datetime, timedelta
from typing import NamedTuple

import pyarrow.compute as pc

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.storage.cursor_ledger.committed_rounds import rows_of, version_of_round
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, ranges_by_cursor
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.publishes import published_files
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import CURSOR_LEDGER

WINDOW_SECONDS = 60
_MAX_ROUNDS = 600
_COLUMNS = (
    "kind topic_id partition subscription first last status consumer_id delivery_round redelivery_count due_time "
    "ack_set batch_size entries round round_time"
).split()


class Activity(NamedTuple):
    """Messages delivered in the last :data:`WINDOW_SECONDS` before *now*, and those redelivered, by cursor and consumer
    id."""

    now: datetime
    delivered: Counter
    redelivered: Counter


def read_activity(layout: Layout, now: datetime) -> Activity:
    path = layout.broker_table(CURSOR_LEDGER.name)
    log, since = TableLog(path), now - timedelta(seconds=WINDOW_SECONDS)
    activity = Activity(now, Counter(), Counter())
    latest = log.latest()
    for version in range(latest, max(latest - _MAX_ROUNDS, 0), -1):
        if not log.has(version):
            break
        rows = rows_of(path, log.commit(version), None, _COLUMNS)
        if not rows.num_rows:
            continue
        times = rows.filter(pc.equal(rows["kind"], "round"))["round_time"].to_pylist()
        if not times or times[0] is None or times[0] <= since:
            break
        is_delivery = pc.and_(pc.equal(rows["status"], PENDING), pc.equal(rows["delivery_round"], rows["round"]))
        for key, ranges in ranges_by_cursor(rows.filter(pc.and_(pc.equal(rows["kind"], "range"), is_delivery))):
            for range_ in ranges:
                activity.delivered[key, range_.consumer_id] += range_.unacked_messages
                activity.redelivered[key, range_.consumer_id] += (
                    range_.unacked_messages if range_.redelivery_count else 0
                )
    return activity


def per_second(counts: Counter, key: CursorKey, consumer_id: str | None = None) -> float:
    return round(
        sum(count for (of, to), count in counts.items() if of == key and consumer_id in (None, to)) / WINDOW_SECONDS, 3
    )


def rate_in(topic: Topic, partition: int, now: datetime) -> float:
    """Messages per second published in the window, by the producers' clocks; a file counts wholly or not at all."""
    log, since, messages = TableLog(topic.path), now - timedelta(seconds=WINDOW_SECONDS), 0
    for version in range(log.latest(), 0, -1):
        if not log.has(version):
            break
        try:
            files = published_files(topic.path, log.commit(version), topic.partitions)
        except CorruptState:
            continue  # a stopped topic is reported elsewhere: see condition
        times = [file.max_publish_time for file in files if file.max_publish_time]
        if times and max(times) <= since:
            break
        messages += sum(file.rows for file in files if times and file.partition == partition)
    return round(messages / WINDOW_SECONDS, 3)


def round_time(layout: Layout, number: int) -> datetime | None:
    """The time of a round by the machine's clock; None if its row is gone."""
    return _of_round(layout, number, "round_time")


def broker_time(layout: Layout, number: int) -> datetime | None:
    """The time of a round by the broker's own clock; None if its row is gone."""
    return _of_round(layout, number, "due_time")


def _of_round(layout: Layout, number: int, column: str) -> datetime | None:
    path = layout.broker_table(CURSOR_LEDGER.name)
    try:
        version = version_of_round(path, number)
    except CorruptState:  # a bundle that was split off did not commit the rounds before
        version = None
    if version is None:
        return None
    rows = rows_of(path, TableLog(path).commit(version), None, ["kind", column])
    return next(iter(rows.filter(pc.equal(rows["kind"], "round"))[column].to_pylist()), None)
