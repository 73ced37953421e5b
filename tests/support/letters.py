"""Hand-made dead letters: letter *n* is message *n* of a topic of two partitions, written a minute after the one
before."""

from datetime import datetime, timedelta, timezone

from pulsar_spark.protocol.redelivery.letters import dead_letter_properties, dead_letter_topic
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import find_or_create_topic, read_topic
from pulsar_spark.table_specs import MESSAGES

TOPIC, SUBSCRIPTION = "persistent://public/default/orders", "billing"
LETTERS = dead_letter_topic(TOPIC, SUBSCRIPTION)
REDELIVERED, RECONSUMED = "max_redeliver_count", "max_reconsume_times"
WRITTEN = datetime(2024, 5, 1, tzinfo=timezone.utc)
EVENT = datetime(2024, 4, 1, tzinfo=timezone.utc)


def write_letters(
    layout: Layout,
    numbers: range,
    *,
    topic: str = LETTERS,
    more: dict | None = None,
    payload: bytes | None = None,
    **columns,
) -> None:
    """Write letters in one commit: even ones redelivered, odd ones reconsumed, of keys k0, k1 and k2 in turn, with the
    properties *more*, and *columns* instead of these.

    The payload is the number unless one is given for all.
    """
    find_or_create_topic(layout, TOPIC, 2)
    find_or_create_topic(layout, topic)
    rows = []
    for entry, number in enumerate(numbers):
        told = {"colour": "red", "RECONSUMETIMES": "16", "DELAY_TIME": "5", **(more or {})}
        properties = dead_letter_properties(
            told,
            topic=TOPIC,
            subscription=SUBSCRIPTION,
            message_id=f"(7,{number},{number % 2},-1)",
            cause=(REDELIVERED, RECONSUMED)[number % 2],
            attempts=number,
        )
        rows.append(
            {
                "publish_id": f"{numbers.start:032x}",
                "entry_id": entry,
                "batch_size": 1,
                "partition": -1,
                "payload": payload or str(number).encode(),
                "partition_key": f"k{number % 3}",
                "ordering_key": "o",
                "event_time": EVENT,
                "properties": properties,
                "publish_time": WRITTEN + timedelta(minutes=number),
                **columns,
            }
        )
    AppendTable(read_topic(layout, topic).path).append(MESSAGES.rows(rows))
