"""Exactly once from a subscription into a Delta table: each message is in the table once, whatever crashes or is taken
over when.

Every life of a consumer (see ``membership``) writes its deliveries in order of rounds, each in one commit whose Delta
transaction is (sink, consumer id) at version *round*. Two facts carry the argument:

1. *A consumer id has no gaps.* An error ends the consumer, and losing deliveries ends its id, so what an id has written
   is exactly what was delivered to it up to the version of its transaction. (Rounds that waited are written together,
   at the last one's version.)
2. *Who takes entries over fences the one before.* Before a delivery is written, the rounds' history says whether some
   of its entries had been delivered to another id. That id's transaction is then raised to :data:`FENCED`, in a commit
   that also notes the version before. Delta refuses a transaction at or below the version it has seen, so the other can
   write nothing any more, and whether it had written these entries is known for good: they are left out if it had.

So an entry is written by one id at most, and none is acknowledged that is not in the table. A crash before the write:
nothing was written, the entries come again. Between write and acknowledgement: they come again to another id, which
finds them written, leaves them out and acknowledges. A consumer that sleeps through its lease and wakes up finds itself
fenced and stops. The whole holds for every subscription type and for several consumers of one subscription with the
same sink. A seek back asks for messages again, and they are written again.
"""

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame

from pulsar_spark.errors import InvalidConfiguration, NotConnected
from pulsar_spark.frames.delivery import Delivery, subtract
from pulsar_spark.protocol.cursor import PENDING
from pulsar_spark.storage.cursor_ledger import read_round, version_of_round
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import dataset_of, open_table
from pulsar_spark.storage.slices import PositionRange
from pulsar_spark.storage.tables import append_lock
from pulsar_spark.table_specs import CURSOR_LEDGER

FENCED = 2**62
"""Above every round."""
_COLUMNS = [
    "kind",
    "topic_id",
    "partition",
    "subscription",
    "first",
    "last",
    "status",
    "consumer_id",
    "delivery_round",
    "round",
    "mark_delete_position",
    "is_removed",
]


class Sent(NamedTuple):
    """Entries of a partition once delivered to a consumer."""

    consumer_id: str
    round: int
    first: int
    last: int


def to_delta(
    path: str | os.PathLike, *, name: str = "sink", transform: Callable[[DataFrame], DataFrame] | None = None
) -> "DeltaSink":
    """A function for :func:`consume` that appends each delivery to the Delta table at *path*, exactly once.

    *transform* makes the rows to write of the messages (which carry ``partition`` and ``position``, plus the columns
    asked for); the table is created with their schema. *name* tells sinks of one table apart. One sink serves one topic
    and subscription.
    """
    return DeltaSink(path, name, transform)


class DeltaSink:
    """Made by :func:`to_delta`. ``is_exactly_once`` tells the consumer to stop at an error rather than go on."""

    is_exactly_once = True

    def __init__(self, path: str | os.PathLike, name: str, transform: Callable[[DataFrame], DataFrame] | None):
        self._path = Path(path).expanduser().absolute()
        self._name = name
        self._transform = transform or (lambda messages: messages)
        self._history: History | None = None
        self.rows_written = 0
        """Rows appended to the table, by this object."""

    def open(self, layout: Layout, topic_id: str, subscription: str) -> None:
        """Called by the consumer before it subscribes."""
        if self._history is not None and self._history.key != (topic_id, subscription):
            raise InvalidConfiguration("one sink serves one topic and subscription: make another with to_delta")
        self._history = History(layout, topic_id, subscription)

    def __call__(self, messages: DataFrame, delivery: Delivery) -> None:
        rows = self._transform(messages)
        if not TableLog(self._path).exists():
            with append_lock(self._path):
                DeltaTable.create(str(self._path), rows.limit(0).toArrow().schema, mode="ignore")
        written = self._written_before(delivery)
        if not any(subtract(held, written.get(held.partition, [])) for held in delivery.ranges):
            return
        for partition, holes in written.items():
            for first, last in holes:
                messages = messages.filter(
                    ~((messages["partition"] == partition) & messages["position"].between(first, last))
                )
        self._append(self._transform(messages) if written else rows, delivery)

    def _append(self, rows: DataFrame, delivery: Delivery) -> None:
        app_id = self._app_id(delivery.consumer_id)
        log = TableLog(self._path)
        with append_lock(self._path):
            before = log.latest()
            rows.write.format("delta").mode("append").option("txnAppId", app_id).option(
                "txnVersion", delivery.round
            ).save(str(self._path))
            mine = [commit for commit in log.commits(before) if commit.transactions.get(app_id) == delivery.round]
        is_committed = bool(mine)
        self.rows_written += sum(file.rows for commit in mine for file in commit.added)
        if not is_committed and (open_table(self._path).transaction_version(app_id) or 0) >= FENCED:
            raise NotConnected(
                f"consumer {delivery.consumer_id!r} lost its lease while it wrote to {str(self._path)!r}, and "
                "another took its messages over: "
                "nothing was written twice; consume again"
            )

    def _written_before(self, delivery: Delivery) -> dict[int, list[tuple[int, int]]]:
        """Per partition the positions of the delivery that are in the table."""
        self._history.read_up_to(delivery.round)
        written: dict[int, list[tuple[int, int]]] = defaultdict(list)
        versions: dict[str, int] = {}
        for held in delivery.ranges:
            for sent in self._history.overlapping(held, delivery.consumer_id):
                if sent.consumer_id not in versions:
                    versions[sent.consumer_id] = self._fence(sent.consumer_id)
                if sent.round <= versions[sent.consumer_id]:
                    written[held.partition].append((max(sent.first, held.first), min(sent.last, held.last)))
        return written

    def _fence(self, consumer_id: str) -> int:
        """Make sure the consumer writes no more; the last round it wrote, -1 for none."""
        app_id = self._app_id(consumer_id)
        while True:
            table = open_table(self._path)
            version = table.transaction_version(app_id)
            if version is not None and version >= FENCED:
                return table.transaction_version(f"{app_id}/written")
            last = -1 if version is None else version
            fence = CommitProperties(
                max_commit_retries=0,
                app_transactions=[Transaction(app_id, FENCED), Transaction(f"{app_id}/written", last)],
            )
            with append_lock(self._path):
                try:
                    table.create_write_transaction([], mode="append", schema=table.schema(), commit_properties=fence)
                except CommitFailedError:
                    continue
            return last

    def _app_id(self, consumer_id: str) -> str:
        return f"pulsar_spark/{self._name}/{consumer_id}"


class History:
    """What was delivered of one subscription above its mark-delete position, from the rounds as committed.

    A mark-delete position that goes back is a seek, or a subscription made again: what was delivered before it was
    asked for again, and is forgotten.
    """

    def __init__(self, layout: Layout, topic_id: str, subscription: str):
        self.key = (topic_id, subscription)
        self._path = layout.broker_table(CURSOR_LEDGER.name)
        self._seen = self._round = -1
        self._mark_delete: dict[int, int] = {}
        self._sent: dict[int, list[Sent]] = defaultdict(list)

    def read_up_to(self, round_number: int) -> None:
        """Take in the rounds up to and including this one."""
        if round_number <= self._round:
            return
        version = version_of_round(self._path, round_number, after=self._seen)
        if self._seen < 0:
            until = self._is_mine() & (ds.field("round") <= round_number)
            self._apply(dataset_of(self._path).to_table(columns=_COLUMNS, filter=until))
        else:
            for each in range(self._seen + 1, version + 1):
                self._apply(read_round(self._path, each).select(_COLUMNS).filter(self._is_mine()))
        self._seen, self._round = version, round_number

    def overlapping(self, held: PositionRange, but: str) -> list[Sent]:
        """What was delivered of a range to consumers other than *but*."""
        return [
            sent
            for sent in self._sent[held.partition]
            if sent.consumer_id != but and sent.first <= held.last and sent.last >= held.first
        ]

    def _is_mine(self) -> ds.Expression:
        topic_id, subscription = self.key
        is_delivery = (
            (ds.field("kind") == "range")
            & (ds.field("status") == PENDING)
            & (ds.field("delivery_round") == ds.field("round"))
        )
        return (
            (ds.field("topic_id") == topic_id)
            & (ds.field("subscription") == subscription)
            & (is_delivery | (ds.field("kind") == "cursor"))
        )

    def _apply(self, rows: pa.Table) -> None:
        # Of one round the cursor goes first: its deliveries happened after the cursor was moved.
        for row in sorted(rows.to_pylist(), key=lambda row: (row["round"], row["kind"])):
            partition = row["partition"]
            if row["kind"] == "range":
                self._sent[partition].append(Sent(row["consumer_id"], row["round"], row["first"], row["last"]))
                continue
            before = self._mark_delete.get(partition, -1)
            after = -1 if row["is_removed"] else row["mark_delete_position"]
            self._mark_delete[partition] = after
            if after != before or row["is_removed"]:
                self._sent[partition] = (
                    []
                    if after < before or row["is_removed"]
                    else [sent for sent in self._sent[partition] if sent.last > after]
                )
