"""Rounds that a test wrote by hand, for what reads them: states that no short history leads to."""

from pulsar_spark.broker.facts import rows_of_round
from pulsar_spark.storage.tables import AppendTable
from pulsar_spark.table_specs import CURSOR_LEDGER


class BrokerDouble:
    def __init__(self, layout):
        self._ledger = AppendTable(layout.broker_table(CURSOR_LEDGER.name))
        self._round = 0

    def commit_round(self, facts, ranges=(), round_time=None):
        self._round += 1
        round_row = {"kind": "round", "is_snapshot": False, "requests_version": 0, "epoch": 1, "round_time": round_time}
        self._ledger.append(rows_of_round(self._round, [round_row, *facts], ranges))
