"""The highest sequence ids of a topic's producers, from its log (see protocol.policies.deduplication)."""

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.policies.deduplication import PREFIX
from pulsar_spark.storage.delta.actions import Commit, parse_commit
from pulsar_spark.storage.delta.checkpoints import checkpoints
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.store.store import AnyPath, store_of

_TRANSACTIONS = ["txn.appId", "txn.version", "txn.lastUpdated"]


class SequenceIds:
    """The highest sequence id of each transaction that *is_wanted*.

    The first read forgets those older than *forgotten_ms* (0: none).
    """

    def __init__(
        self,
        table: AnyPath,
        is_wanted: Callable[[str], bool],
        forgotten_ms: int = 0,
        clock: Callable[[], float] = time.time,
    ):
        self._table, self._log = table, TableLog(table)
        self._is_wanted = is_wanted
        self._forgotten_ms, self._clock = forgotten_ms, clock
        self.highest: dict[str, int] = {}
        self.version = -1

    def catch_up(self) -> None:
        """Read later commits; FileNotFoundError without a table, :class:`CorruptState` for an unreadable log."""
        while True:
            try:
                if self.version < 0:
                    self._begin()
                elif not self._log.is_shortened(self.version):
                    self._follow()
                    return
                self.version = -1 if self._log.is_shortened(self.version) else self.version
            except FileNotFoundError:  # a commit is gone: the log was shortened meanwhile, unless the table is gone too
                if self._log.latest() < 0:
                    raise
                self.version = -1

    def committed(self, version: int, transactions: dict[str, int]) -> None:
        """Add an own commit, if nobody committed these transactions before it."""
        self.highest |= transactions
        self.version = version

    def _begin(self) -> None:
        since = self._clock() * 1000 - self._forgotten_ms if self._forgotten_ms else float("-inf")
        found, version = self._of_checkpoint()
        latest = self._log.latest()
        if latest < 0:
            raise FileNotFoundError(self._table)
        for commit in self._commits(version, latest):
            for app_id, sequence_id in commit.transactions.items():
                if self._is_wanted(app_id):
                    found[app_id] = sequence_id, commit.updated_ms.get(app_id)
        forgotten = {name for name, (_, updated_ms) in found.items() if updated_ms is not None and updated_ms < since}
        self.highest |= {name: highest for name, (highest, _) in found.items() if name not in forgotten}
        self.version = latest

    def _follow(self) -> None:
        latest = self._log.latest(self.version)
        for commit in self._commits(self.version, latest):
            self.highest |= {name: each for name, each in commit.transactions.items() if self._is_wanted(name)}
        self.version = latest

    def _commits(self, after: int, until: int) -> Iterator[Commit]:
        for version in range(after + 1, until + 1):
            text = self._log.file(version).read_bytes()
            if PREFIX.encode() in text:
                yield parse_commit(version, text, self._table)

    def _of_checkpoint(self) -> tuple[dict[str, tuple[int, int | None]], int]:
        for each in reversed(checkpoints(self._table)):
            try:
                return dict(self._transactions(each.files)), each.version
            except (pa.ArrowInvalid, FileNotFoundError):
                continue
        if self._log.earliest() > 1:
            raise CorruptState(
                f"{str(self._table)!r}: no checkpoint can be read, and earlier commits are "
                f"missing from the log; {DOCTOR}"
            )
        return {}, 0

    def _transactions(self, files: tuple[AnyPath, ...]) -> Iterator[tuple[str, tuple[int, int | None]]]:
        for file in files:
            for batch in pq.ParquetFile(store_of(file).parquet(file)).iter_batches(columns=_TRANSACTIONS):
                for row in batch.column(0).drop_null().to_pylist():
                    if row["appId"] is not None and self._is_wanted(row["appId"]):
                        yield row["appId"], (row["version"], row.get("lastUpdated"))
