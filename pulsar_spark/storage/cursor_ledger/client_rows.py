"""The rows of a round that clients need: its own, replies, deliveries, and news of consumers."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.storage.cursor_ledger.range_rows import lists_of
from pulsar_spark.storage.delta.reader_rows import rows_from
from pulsar_spark.table_specs import CURSOR_LEDGER

COLUMNS = [
    "kind",
    "topic",
    "topic_id",
    "partition",
    "subscription",
    "first",
    "last",
    "status",
    "consumer_id",
    "delivery_round",
    "round",
    "redelivery_count",
    "ack_set",
    "batch_size",
    "positions",
    "chunks",
    "is_removed",
    "is_active",
    "request_id",
    "error",
    "text",
    "requests_version",
]
_SCHEMA = pa.schema([CURSOR_LEDGER.schema.field(name) for name in COLUMNS])


def client_rows(rows: pa.Table) -> pa.Table:
    """The rows of one round that clients need, in :data:`COLUMNS`. A range that the round only writes again is no
    delivery."""
    rows = rows.select(COLUMNS)
    kind = rows["kind"]
    is_delivery = pc.and_(pc.equal(rows["delivery_round"], rows["round"]), pc.equal(rows["status"], PENDING))
    is_news = pc.or_(pc.fill_null(rows["is_removed"], False), pc.is_valid(rows["is_active"]))
    is_needed = pc.is_in(kind, pa.array(["round", "reply"]))
    for of_kind, is_so in (("range", is_delivery), ("consumer", is_news)):
        is_needed = pc.or_(is_needed, pc.and_(pc.equal(kind, of_kind), pc.fill_null(is_so, False)))
    return rows.filter(is_needed)


def as_objects(rows: pa.Table) -> list[dict]:
    """Rows as dictionaries by column; ``positions`` as an array."""
    objects = rows.drop_columns(["positions"]).to_pylist()
    for row, positions in zip(objects, lists_of(rows["positions"])):
        row["positions"] = positions
    return objects


def from_commit(rows: Iterable[dict]) -> list[dict]:
    """:func:`as_objects` of the rows in a commit."""
    objects = rows_from(rows, _SCHEMA)
    for row in objects:
        if row["positions"] is not None:
            row["positions"] = np.array(row["positions"], np.int64)
    return objects
