"""What was delivered of a subscription to whom and when, from its rounds, so that a sink finds consumers to fence."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round, version_of_round
from pulsar_spark.storage.cursor_ledger.range_rows import by_position
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import read_rows
from pulsar_spark.storage.layout import Layout
from pulsar_spark.table_specs import CURSOR_LEDGER

_COLUMNS = (
    "kind topic_id partition subscription first last status consumer_id delivery_round round mark_delete_position "
    "is_removed positions"
).split()


class Sent(NamedTuple):
    consumer_ids: np.ndarray
    rounds: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray

    @classmethod
    def nothing(cls) -> Self:
        return cls(np.empty(0, object), *(np.empty(0, np.int64) for _ in range(3)))

    def where(self, chosen: np.ndarray) -> Self:
        return type(self)(*(column[chosen] for column in self))

    def followed_by(self, others: Self) -> Self:
        return type(self)(*(np.concatenate(columns) for columns in zip(self, others, strict=True)))


class History:
    """Deliveries of one subscription above its mark-delete position, from committed rounds. If that position goes back,
    earlier deliveries are forgotten."""

    def __init__(self, layout: Layout, topic_id: str, subscription: str):
        self.key = (topic_id, subscription)
        self._layout, self._path = layout, layout.broker_table(CURSOR_LEDGER.name)
        self._seen = self._round = -1
        self._mark_delete: dict[int, int] = {}
        self._sent: dict[int, Sent] = defaultdict(Sent.nothing)

    def read_up_to(self, round_number: int) -> None:
        if round_number <= self._round:
            return
        version = version_of_round(self._path, round_number, after=self._seen)
        if self._seen < 0 or version is None or TableLog(self._path).is_shortened(self._seen):
            is_new = (ds.field("round") > self._round) & (ds.field("round") <= round_number)
            self._apply(read_rows(self._path, _COLUMNS, self._is_mine() & is_new))
        else:
            for each in range(self._seen + 1, version + 1):
                self._apply(read_round(self._path, each).select(_COLUMNS).filter(self._is_mine()))
        self._seen, self._round = self._seen if version is None else version, round_number

    def overlapping(self, partition: int, spans: Sequence[tuple[int, int]], consumer_id: str) -> Sent:
        """What was delivered of *spans* (first, last; ascending, disjoint) to other consumers than *consumer_id*, as
        ranges of all their entries."""
        sent = self._sent[partition]
        return _inside(sent.where(sent.consumer_ids != consumer_id), *as_array(spans))

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
        # Within a round, cursors come before deliveries, which happened after the move.
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
                continue
            self._move(rows.slice(start, 1).to_pylist()[0])

    def _add(self, rows: pa.Table) -> None:
        rows = by_position(rows)
        numbers = (rows[name].to_numpy() for name in ("round", "first", "last"))
        partition = rows["partition"][0].as_py()
        added = Sent(rows["consumer_id"].to_numpy(zero_copy_only=False), *numbers)
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


def _inside(sent: Sent, firsts: np.ndarray, lasts: np.ndarray) -> Sent:
    begin, end = np.searchsorted(lasts, sent.firsts), np.searchsorted(firsts, sent.lasts, "right")
    of_stretch = expanded(begin, end - 1)
    found = sent.where(np.repeat(np.arange(len(begin)), end - begin))
    return found._replace(
        firsts=np.maximum(found.firsts, firsts[of_stretch]), lasts=np.minimum(found.lasts, lasts[of_stretch])
    )
