"""Writes requests: one commit to ``requests`` at a time, and never the same request twice (see sure_append).

Checkpoints of the table are the broker's, who follows it: to open a table takes a client some 50 MB and a thread for
each commit behind the last checkpoint, and more of both the more a broker has not put away.
"""

import time
from collections.abc import Callable

from pulsar_spark.errors import ConnectError
from pulsar_spark.storage.faults import is_fault_of_disk
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.sure_append import SureAppend
from pulsar_spark.table_specs import REQUESTS

RETRY_SECONDS = 0.2


class RequestWriter:
    """For one thread at a time. *is_ending* says whether to give up rather than try again."""

    def __init__(self, layout: Layout, is_ending: Callable[[], bool]):
        self._is_ending = is_ending
        self._table = SureAppend(layout.broker_table(REQUESTS.name), "request_id", makes_checkpoints=False)

    @property
    def path(self) -> str:
        """The folder of the table."""
        return self._table.path

    def write(self, rows: list[dict]) -> int:
        """The version that holds *rows*, in order; :class:`ConnectError` when the table is gone or cannot be written
        any more."""
        try:
            return self._table.append(REQUESTS.rows(rows), self._wait)
        except FileNotFoundError as gone:
            raise ConnectError(f"{self.path!r} was deleted or made again: open a new client") from gone

    def _wait(self, unclear: Exception) -> None:
        if self._is_ending() or not self._is_there():
            raise ConnectError(f"{self.path!r} cannot be written: {unclear}") from unclear
        time.sleep(RETRY_SECONDS)

    def _is_there(self) -> bool:
        """Is there a table still, as far as one can tell now?"""
        try:
            return self._table.exists()
        except OSError as fault:
            if not is_fault_of_disk(fault):
                raise
            return True
