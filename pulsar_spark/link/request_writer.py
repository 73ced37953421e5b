"""Writes requests: one commit to ``requests`` at a time, and never the same request twice.

A commit whose outcome is unclear is looked up by its first request id and written again only if it is not there.
"""

import time
from collections.abc import Callable

from deltalake.exceptions import DeltaError

from pulsar_spark.errors import ConnectError
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.tables import AppendTable
from pulsar_spark.table_specs import REQUESTS

RETRY_SECONDS = 0.2


class RequestWriter:
    """For one thread at a time. *is_ending* says whether to give up rather than try again."""

    def __init__(self, layout: Layout, is_ending: Callable[[], bool]):
        self._is_ending = is_ending
        self._table = AppendTable(layout.broker_table(REQUESTS.name))
        self._log = TableLog(layout.broker_table(REQUESTS.name))
        self._version = self._log.latest()

    @property
    def path(self) -> str:
        """The folder of the table."""
        return self._table.path

    def write(self, rows: list[dict]) -> int:
        """The version that holds *rows*, in order; :class:`ConnectError` when the table is gone or cannot be written
        any more."""
        table = REQUESTS.rows(rows)
        while True:
            try:
                self._version = self._table.append(table)
                return self._version
            except FileNotFoundError as gone:
                raise ConnectError(f"{self.path!r} was deleted or made anew: open a new client") from gone
            except (DeltaError, OSError) as unclear:
                found = self._find(min(row["request_id"] for row in rows))
                if found is not None:
                    return found
                if self._is_ending() or not self._log.exists():
                    raise ConnectError(f"{self.path!r} cannot be written: {unclear}") from unclear
                time.sleep(RETRY_SECONDS)

    def _find(self, first_request_id: str) -> int | None:
        for commit in self._log.commits(after=self._version):
            if any(file.min_values.get("request_id") == first_request_id for file in commit.added):
                return commit.version
        return None
