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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame

from pulsar_spark.errors import InvalidConfiguration, NotConnected
from pulsar_spark.frames.delivery import Delivery, without
from pulsar_spark.protocol.cursor import PENDING
from pulsar_spark.protocol.positions import Positions, expanded
from pulsar_spark.storage.cursor_ledger import read_round, version_of_round
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import dataset_of, open_table
from pulsar_spark.storage.slices import by_partition, without_positions
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
    """Entries of a partition once delivered: of each range to whom, in which round, and its first and last position."""

    consumer_ids: np.ndarray
    rounds: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray

    @classmethod
    def nothing(cls) -> Self:
        return cls(np.empty(0, object), *(np.empty(0, np.int64) for _ in range(3)))

    def where(self, chosen: np.ndarray) -> Self:
        """Some of them, by a flag or an index each."""
        return type(self)(*(column[chosen] for column in self))

    def followed_by(self, others: Self) -> Self:
        return type(self)(*(np.concatenate(columns) for columns in zip(self, others, strict=True)))


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
        if not without(delivery.ranges, written):
            return
        if written:
            rows = self._transform(without_positions(messages.sparkSession, messages, written))
        self._append(rows, delivery)

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
        written: dict[int, list[tuple[int, int]]] = {}
        for partition, held in by_partition(delivery.ranges).items():
            spans = [(each.first, each.last) for each in held]
            sent = self._history.overlapping(partition, spans, delivery.consumer_id)
            versions = {consumer_id: self._fence(consumer_id) for consumer_id in dict.fromkeys(sent.consumer_ids)}
            is_written = sent.rounds <= np.array([versions[each] for each in sent.consumer_ids], np.int64)
            if is_written.any():
                found = Positions(sorted(zip(sent.firsts[is_written].tolist(), sent.lasts[is_written].tolist())))
                written[partition] = list(found)
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
        self._sent: dict[int, Sent] = defaultdict(Sent.nothing)

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

    def overlapping(self, partition: int, spans: Sequence[tuple[int, int]], but: str) -> Sent:
        """What was delivered of *spans* (first, last; in order, none overlaps the next) to consumers other than
        *but*."""
        sent = self._sent[partition]
        sent = sent.where(sent.consumer_ids != but)
        firsts, lasts = np.array(spans, np.int64).reshape(-1, 2).T
        begin, end = np.searchsorted(lasts, sent.firsts), np.searchsorted(firsts, sent.lasts, "right")
        of_span = expanded(begin, end - 1)
        found = sent.where(np.repeat(np.arange(len(begin)), end - begin))
        return found._replace(
            firsts=np.maximum(found.firsts, firsts[of_span]), lasts=np.minimum(found.lasts, lasts[of_span])
        )

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
        rows = rows.sort_by([("round", "ascending"), ("kind", "ascending"), ("partition", "ascending")])
        is_range = pc.equal(rows["kind"], "range").to_numpy()
        changes = [pc.fill_null(rows[name], -1).to_numpy() for name in ("round", "partition")]
        is_first = np.logical_or.reduce(
            [np.diff(column, prepend=-2) != 0 for column in (*changes, is_range.astype("i1"))]
        )
        starts = np.flatnonzero(is_first | ~is_range)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), rows.num_rows]):
            if is_range[start]:
                self._add(rows.slice(start, end - start))
            else:
                self._move(rows.slice(start, 1).to_pylist()[0])

    def _add(self, rows: pa.Table) -> None:
        """Take in deliveries of a partition."""
        numbers = (rows[name].to_numpy() for name in ("round", "first", "last"))
        added = Sent(rows["consumer_id"].to_numpy(zero_copy_only=False), *numbers)
        partition = rows["partition"][0].as_py()
        self._sent[partition] = self._sent[partition].followed_by(added)

    def _move(self, cursor: dict) -> None:
        partition = cursor["partition"]
        before = self._mark_delete.get(partition, -1)
        after = -1 if cursor["is_removed"] else cursor["mark_delete_position"]
        self._mark_delete[partition] = after
        if after < before or cursor["is_removed"]:
            self._sent[partition] = Sent.nothing()
        elif after > before:
            self._sent[partition] = self._sent[partition].where(self._sent[partition].lasts > after)
