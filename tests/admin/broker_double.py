"""A broker's two ends for tests: it reads what was asked and commits rounds that a test wrote by hand."""

import threading

from pulsar_spark.broker.facts import rows_of_round
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.tables import AppendTable, read_added
from pulsar_spark.table_specs import CURSOR_LEDGER, REQUESTS


def said(request: dict) -> dict[str, str]:
    """The properties of a request, but for the instant until which it holds."""
    properties = dict(request["properties"] or ())
    properties.pop("valid_until_ms")
    return properties


class BrokerDouble:
    """Commits rounds; as a context, answers every request from a thread with what ``answer(request)`` gives."""

    def __init__(self, layout, answer=lambda request: {}):
        self._requests = layout.broker_table(REQUESTS.name)
        self._ledger = AppendTable(layout.broker_table(CURSOR_LEDGER.name))
        self._answer = answer
        self._round = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.asked: list[dict] = []

    def commit_round(self, facts, ranges=(), round_time=None):
        self._round += 1
        round_row = {"kind": "round", "is_snapshot": False, "requests_version": 0, "epoch": 1, "round_time": round_time}
        self._ledger.append(rows_of_round(self._round, [round_row, *facts], ranges))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        log, seen = TableLog(self._requests), 0
        while not self._stop.wait(0.01):
            while log.has(seen + 1):
                seen += 1
                requests = read_added(self._requests, log.commit(seen), REQUESTS.schema).to_pylist()
                self.asked += requests
                names = ("request_id", "topic", "partition", "subscription")
                self.commit_round(
                    [{"kind": "reply", **{name: row[name] for name in names}, **self._answer(row)} for row in requests]
                )
