"""Asking the broker and waiting for its answer, without a JVM.

Requests are appended to the bundle's ``requests`` table in one commit, so that a round sees all of them or none; their
replies are rows of the commit of ``cursor_ledger`` that decided them. A request says until when it holds, a little less
long than its answer is waited for, so one that failed with Timeout is not carried out later.
"""

import time
import uuid

from pulsar_spark.errors import NotARoot, Timeout, named
from pulsar_spark.link import interrupts
from pulsar_spark.link.requests import RequestMaker, valid_for
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.tables import AppendTable, read_added, read_definition
from pulsar_spark.table_specs import CURSOR_LEDGER, REQUESTS

POLL_SECONDS = 0.01
_REPLY_COLUMNS = ["kind", "request_id", "error", "text", "topic", "partition", "subscription"]


class Requester:
    """One asker of one bundle; not to be shared between threads."""

    def __init__(self, layout: Layout, *, timeout_seconds: float = 30):
        self.layout = layout
        self.timeout_seconds = timeout_seconds
        self._maker = RequestMaker(f"admin-{uuid.uuid4().hex}")

    def ask(self, requests: list[dict]) -> list[dict]:
        """The reply rows to *requests*, in their order; the first refusal is raised under its own name,
        :class:`Timeout` when no broker answers."""
        if not requests:
            return []
        log = TableLog(self.layout.broker_table(CURSOR_LEDGER.name))
        seen = log.latest()
        rows = valid_for([self._maker.make(**request) for request in requests], self.timeout_seconds)
        table = self.layout.broker_table(REQUESTS.name)
        try:
            AppendTable(table).append(REQUESTS.rows(rows))
        except FileNotFoundError:
            raise NotARoot(
                f"root {str(self.layout.root)!r} has no broker tables: start a broker on it or create a topic first"
            ) from None
        replies = self._replies(log, seen, [row["request_id"] for row in rows])
        for reply in replies:
            if reply["error"]:
                raise named(reply["error"])(reply["text"])
        return replies

    def _replies(self, log: TableLog, seen: int, request_ids: list[str]) -> list[dict]:
        missing, found, sleep = set(request_ids), {}, interrupts.sleeper()
        deadline = time.monotonic() + self.timeout_seconds
        while missing:
            if log.has(seen + 1):
                seen += 1
                for reply in self._read(log, seen):
                    if reply["request_id"] in missing:
                        missing.remove(reply["request_id"])
                        found[reply["request_id"]] = reply
            elif time.monotonic() > deadline:
                raise Timeout(
                    f"no broker answered within {self.timeout_seconds:g} s on root {str(self.layout.root)!r}: "
                    f"start one with 'pulsar-spark broker --root {self.layout.root}'"
                )
            else:
                sleep(POLL_SECONDS)
        return [found[request_id] for request_id in request_ids]

    def _read(self, log: TableLog, version: int) -> list[dict]:
        table = self.layout.broker_table(CURSOR_LEDGER.name)
        rows = read_added(table, log.commit(version), CURSOR_LEDGER.schema, _REPLY_COLUMNS)
        return [row for row in rows.to_pylist() if row["kind"] == "reply" and row["request_id"]]


def require_root(layout: Layout) -> None:
    """Raise :class:`NotARoot` unless the root's broker tables are there and of a layout this release reads."""
    try:
        read_definition(layout.broker_table(CURSOR_LEDGER.name))
    except FileNotFoundError:
        raise NotARoot(
            f"root {str(layout.root)!r} is not a root of pulsar_spark: create a topic or start a broker there, or "
            "give another root"
        ) from None
    except OSError as error:
        raise NotARoot(f"root {str(layout.root)!r} cannot be read: {error}; give another root") from error
