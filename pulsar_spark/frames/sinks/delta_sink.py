"""Write a subscription into a Delta table exactly once, through crashes and takeovers.

Each life of a consumer (see ``membership``) writes its deliveries in order of rounds, one commit each, as Delta
transaction (sink, consumer id) at version *round*. Only written entries are acknowledged, and one id at most writes
each entry:

1. *A consumer id has no gaps.* An error ends the consumer, and lost deliveries end its id. So an id has written all its
   deliveries up to its transaction's version. Merged rounds are written at the last one's version.
2. *A takeover fences the previous consumer.* If the rounds show that entries were delivered to another id before, that
   id's transaction is raised to :data:`FENCED`, in a commit that records the version before. Delta refuses its later
   writes; entries that it had written are left out.

A seek back writes messages again."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame

from pulsar_spark.described import Described
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, NotConnected
from pulsar_spark.frames.deliveries.delivery import Delivery, without
from pulsar_spark.frames.deliveries.named_entries import exact
from pulsar_spark.frames.given_frames import function_name, shown
from pulsar_spark.frames.sinks.merging import checked_keys, last_of_each, merge
from pulsar_spark.frames.sinks.sent_history import History
from pulsar_spark.frames.sinks.target import Target
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.table_lock import append_lock
from pulsar_spark.storage.entries.slices import by_partition, without_positions
from pulsar_spark.storage.layout import Layout

FENCED = 2**62
"""Higher than every round."""


def to_delta(
    target: str | os.PathLike,
    *,
    name: str = "sink",
    transform: Callable[[DataFrame], DataFrame] | None = None,
    merge_on: str | Sequence[str] | None = None,
) -> "DeltaSink":
    """A function for :func:`consume` that writes each delivery to the Delta table *target*, exactly once.

    A *target* with a slash is a path, any other text the name of a table in a catalog of the session:
    ``catalog.schema.table`` or ``schema.table``. A missing table is created with the schema of the first rows.
    :class:`OperationNotSupported` for a table in an object store.

    *transform* turns the messages into the rows to write. The messages have ``partition``, ``position`` and the columns
    that ``consume`` asks for. With *merge_on*, one column or several, rows are merged instead of appended: a row
    replaces the one with the same values in these columns, nulls included. Of several such rows in a delivery the last
    by ``position`` is written, so the rows must keep that column. Columns that the table lacks are left out.

    *name* identifies the sink if several write to one table. A sink serves one topic and subscription."""
    return DeltaSink(Target(target), name, transform, () if merge_on is None else checked_keys(merge_on))


class DeltaSink(Described):
    is_exactly_once = True

    def __init__(
        self, target: Target, name: str, transform: Callable[[DataFrame], DataFrame] | None, merge_on: tuple[str, ...]
    ):
        self._target, self._path = target, Path()
        self._name, self._merge_on = name, merge_on
        self._transform = transform
        self._history: History | None = None
        self.rows_written = 0
        """Rows appended to the table, or inserted and updated in it, by this object."""

    def _facts(self) -> dict[str, object]:
        facts: dict[str, object] = {"target": str(self._target), "rows_written": self.rows_written}
        if self._merge_on:
            facts["merge_on"] = list(self._merge_on)
        return facts if self._transform is None else facts | {"transform": function_name(self._transform)}

    def open(self, layout: Layout, topic_id: str, subscription: str) -> None:
        """Bind the sink to a topic and subscription, before the consumer subscribes."""
        if self._history is not None and self._history.key != (topic_id, subscription):
            raise InvalidConfiguration("a sink serves only one topic and subscription: create another with to_delta")
        self._history = History(layout, topic_id, subscription)

    def __call__(self, messages: DataFrame, delivery: Delivery) -> None:
        rows = self._rows(messages)
        self._path = self._target.find(rows)
        written = self._written_before(delivery)
        if not without(delivery.ranges, written):
            return
        if written:
            rows = self._rows(without_positions(messages.sparkSession, messages, written))
        self._write(rows, delivery)

    def _rows(self, messages: DataFrame) -> DataFrame:
        if self._transform is not None:
            rows = self._transform(messages)
            if not isinstance(rows, DataFrame):
                raise InvalidMessage(
                    f"{function_name(self._transform)} returned {shown(rows)}: return a Spark DataFrame of the rows to "
                    "write"
                )
            messages = rows
        return last_of_each(messages, self._merge_on) if self._merge_on else messages

    def _write(self, rows: DataFrame, delivery: Delivery) -> None:
        app_id = self._app_id(delivery.consumer_id)
        log = TableLog(self._path)
        with append_lock(self._path):
            before = log.latest()
            if self._merge_on:
                self.rows_written += merge(rows, self._path, self._merge_on, app_id, delivery.round)
            else:
                rows.write.format("delta").mode("append").option("txnAppId", app_id).option(
                    "txnVersion", delivery.round
                ).save(str(self._path))
            mine = [commit for commit in log.commits(before) if commit.transactions.get(app_id) == delivery.round]
        if not self._merge_on:
            self.rows_written += sum(file.rows for commit in mine for file in commit.added)
        if not mine and (open_table(self._path).transaction_version(app_id) or 0) >= FENCED:
            raise NotConnected(
                f"consumer {delivery.consumer_id!r} lost its lease while it wrote to {str(self._path)!r}, and "
                "another consumer took its messages over: nothing was written twice; consume again"
            )

    def _written_before(self, delivery: Delivery) -> dict[int, list[tuple[int, int]]]:
        if self._history is None:
            raise InvalidConfiguration("a sink writes deliveries of a consumer: pass it to consume as the function")
        self._history.read_up_to(delivery.round)
        written: dict[int, list[tuple[int, int]]] = {}
        for partition, of_partition in by_partition(exact(delivery.ranges)).items():
            spans = [(each.first, each.last) for each in of_partition]
            sent = self._history.overlapping(partition, spans, delivery.consumer_id)
            versions = {consumer_id: self._fence(consumer_id) for consumer_id in dict.fromkeys(sent.consumer_ids)}
            is_written = sent.rounds <= np.array([versions[each] for each in sent.consumer_ids], np.int64)
            if is_written.any():
                found = Positions(sorted(zip(sent.firsts[is_written].tolist(), sent.lasts[is_written].tolist())))
                written[partition] = list(found)
        return written

    def _fence(self, consumer_id: str) -> int:
        """Prevent further writes of a consumer and return the last round it wrote, -1 for none."""
        app_id = self._app_id(consumer_id)
        while True:
            table = open_table(self._path)
            version = table.transaction_version(app_id)
            if version is not None and version >= FENCED:
                written = table.transaction_version(f"{app_id}/written")
                return -1 if written is None else written
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
