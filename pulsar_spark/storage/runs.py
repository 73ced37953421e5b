"""Where every entry of a topic lies, whether or not a broker has numbered it yet.

Numbering has one outcome only (see ``protocol.numbering``), so whoever needs positions of a topic that no broker
follows, such as a dead letter topic somebody looks into, numbers the rest of its log himself: what the broker will
write later is the same.
"""

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import PartitionLedgers, number_commit, read_ledgers, runs_of
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.topics import Topic


def read_all_runs(layout: Layout, topic: Topic, until: int) -> dict[int, list[Run]]:
    """The runs of each partition that were published up to version *until*, by position; :class:`CorruptState` when log
    and ``ledgers`` both lack some."""
    rows, _ = read_ledgers(layout.broker_table("ledgers"), topic_id=topic.topic_id)
    partitions: dict[int, PartitionLedgers] = {}
    numbered, publish_ids = 0, set()
    for _, partition, run in runs_of(rows):
        partitions.setdefault(partition, PartitionLedgers()).add(run)
        publish_ids.add(run.publish_id)
        numbered = max(numbered, run.ledger_id)
    log = TableLog(topic.path)
    if numbered < until and not log.has(numbered + 1):
        raise CorruptState(
            f"topic {str(topic.name)!r}: commit {numbered + 1} is neither in the log nor numbered: {DOCTOR}"
        )
    for commit in log.commits(numbered, until):
        ends = {partition: ledgers.end_position for partition, ledgers in partitions.items()}
        for partition, runs in number_commit(topic.path, commit, ends, publish_ids, topic.partitions).items():
            for run in runs:
                partitions.setdefault(partition, PartitionLedgers()).add(run)
    return {
        partition: [run for run in ledgers.runs if run.ledger_id <= until] for partition, ledgers in partitions.items()
    }
