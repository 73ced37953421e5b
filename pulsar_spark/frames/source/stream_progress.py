"""The backlog of a stream's subscription, as a query's progress shows it."""

import time
from collections.abc import Iterable

from pulsar_spark.frames.source.stream_consumer import StreamConsumer
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.views.backlog import read_backlog

LOOK_SECONDS, LOOK_SHARE = 1.0, 20
"""The time from one look to the next, at least so many times as long as a look takes."""


class StreamProgress:
    """Looks at the rounds from time to time."""

    def __init__(self) -> None:
        self._latest: dict[str, LatestRows] = {}
        """By bundle."""
        self._found: dict[str, dict] = {}
        self._next_look = float("-inf")

    def backlogs(self, consumers: Iterable[StreamConsumer]) -> dict[str, dict]:
        """Unacknowledged and delayed entries by topic."""
        if time.monotonic() >= self._next_look:
            began = time.monotonic()
            self._found = {str(each.topic.name): self._of(each) for each in consumers}
            self._next_look = began + max(LOOK_SECONDS, LOOK_SHARE * (time.monotonic() - began))
        return self._found

    def _of(self, consumer: StreamConsumer) -> dict[str, int]:
        layout, topic_id = consumer.connection.layout, consumer.topic.topic_id
        latest = self._latest.setdefault(layout.bundle, LatestRows("range"))
        latest.catch_up(layout.broker_table("cursor_ledger"))
        entries = delayed = 0
        for partition in consumer.receiver.partitions:
            key, end = CursorKey(topic_id, partition, consumer.subscription), consumer.ledgers.end(topic_id, partition)
            if key in latest.cursors:
                found = read_backlog(latest, key, consumer.ledgers, end, now_micros())
                entries, delayed = entries + found.entries, delayed + found.delayed
        return {"backlog": entries, "delayed": delayed}
