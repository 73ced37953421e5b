"""Compact a topic: make its compacted view from the previous one and what was published after its horizon.

The calling process does it, without a JVM up to :data:`SMALL_MESSAGES` and :data:`SMALL_BYTES`. No broker need run. A
crash before the commit leaves the previous view.
"""

import time
from collections.abc import Collection

from pulsar_spark.broker.compaction.compaction_plan import SMALL_BYTES, SMALL_MESSAGES, Write, plan_compaction
from pulsar_spark.broker.compaction.compaction_small import write_small
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.storage.compaction.compacted import CompactedView, Facts, replace_rows
from pulsar_spark.storage.compaction.compaction_status import compacting
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import ledgers_until
from pulsar_spark.storage.topics.topics import Topic


def compact(layout: Layout, topic: Topic, partitions: Collection[int], by_spark: Write | None = None) -> bool:
    """Compact these partitions, with *by_spark* if the topic is large; False without new messages.
    :class:`NotAllowedError` while another compaction runs, or without Spark if it is needed."""
    with compacting(topic):
        started = time.monotonic()
        compaction = plan_compaction(layout, topic, partitions)
        if not compaction.firsts and compaction.view.is_made:
            return False
        write = write_small if compaction.is_small else by_spark
        if write is None:
            raise NotAllowedError(
                f"topic {str(topic.name)!r}: to compact more than {SMALL_MESSAGES} messages or {SMALL_BYTES} bytes "
                f"takes Spark: 'pulsar-spark compact {topic.name}' starts it"
            )
        written = write(compaction)
        facts = Facts(compaction.messages - written.messages, round(1000 * (time.monotonic() - started)))
        replace_rows(compaction.view, dict.fromkeys(compaction.firsts, compaction.until), written.adds, facts)
        return bool(compaction.firsts)


def uncompacted_bytes(layout: Layout, topic: Topic) -> int:
    """Bytes published to a topic after its horizons."""
    view = CompactedView(topic.path)
    found: dict[str, int] = {}
    for partition, ledgers in ledgers_until(layout, topic, TableLog(topic.path).latest()).items():
        first = ledgers.first_after(view.horizon(partition))
        if first < ledgers.end_position:
            found |= {run.path: run.bytes for run in ledgers.parts(first, ledgers.end_position - 1)}
    return sum(found.values())
