"""Rounds that a test wrote by hand, for what reads them: states that no short history leads to."""

from pulsar_spark.broker.committing.round_rows import rows_of_round
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_rows import ledger_rows
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import CURSOR_LEDGER, LEDGERS


def number(layout: Layout, topic: Topic) -> None:
    """Number the topic's commits as the broker does."""
    ends, seen, rows = {}, set(), []
    for commit in TableLog(topic.path).commits(0):
        numbered = number_commit(topic.path, commit, ends, seen)
        rows += ledger_rows(str(topic.name), topic.topic_id, numbered)
        ends |= {partition: runs[-1].last_position + 1 for partition, runs in numbered.items()}
    AppendTable(layout.broker_table(LEDGERS.name)).append(LEDGERS.rows(rows))


class BrokerDouble:
    def __init__(self, layout):
        self._ledger = AppendTable(layout.broker_table(CURSOR_LEDGER.name))
        self._round = 0

    def commit_round(self, facts, ranges=(), round_time=None):
        """*round_time* is both clocks' time, the machine's and the broker's own."""
        self._round += 1
        round_row = {
            "kind": "round",
            "is_snapshot": False,
            "requests_version": 0,
            "epoch": 1,
            "round_time": round_time,
            "due_time": round_time,
        }
        self._ledger.append(rows_of_round(self._round, [round_row, *facts], ranges))
