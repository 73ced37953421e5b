"""Entries written into a topic's table by hand, each a commit of its own, and numbered by a plain broker."""

from datetime import UTC, datetime

from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.chunks import chunk
from tests.support.waiting import eventually


def arrive(broker: PlainBroker, topic: str, *entries: str, partition: int = -1, **columns) -> None:
    """Entries as ``tests.support.chunks`` writes them, published at 00:00, 00:01... with the entry itself as payload;
    *columns* say more of each."""
    found = read_topic(broker.layout, topic)
    table, before = AppendTable(found.path), broker.rounds.bundle.topic(str(found.name))
    begin = before.end_position(partition) if before else 0
    for number, entry in enumerate(entries, begin):
        place = dict(publish_id=f"{number:032x}", entry_id=0, batch_size=1, partition=partition)
        time = datetime(2026, 1, 31, 0, number, tzinfo=UTC)
        said = {"publish_time": time, "payload": entry.encode(), **chunk(entry), **columns}
        table.append(MESSAGES.rows([place | said]))
    eventually(lambda: broker.rounds.bundle.topic(str(found.name)).end_position(partition) == begin + len(entries))
