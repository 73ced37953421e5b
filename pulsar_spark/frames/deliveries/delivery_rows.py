"""Deliveries from the rows of the rounds that made them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from pulsar_spark.frames.deliveries.delivery import Delivery
from pulsar_spark.frames.deliveries.named_entries import Delivered, NamedEntries
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.protocol.acknowledgement.packing import unpacked_pairs
from pulsar_spark.storage.cursor_ledger.client_rows import COLUMNS, as_objects
from pulsar_spark.storage.delta.scan import read_rows
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import CURSOR_LEDGER


def ranges_of_row(row: dict) -> Sequence[Delivered]:
    """The entries that a *row* of a delivery names."""
    ack_set, positions = None if row["ack_set"] is None else tuple(row["ack_set"]), row["positions"]
    range_ = PositionRange(
        row["partition"], row["first"], row["last"], row["redelivery_count"] or 0, ack_set, row["batch_size"] or 1
    )
    if positions is None:
        return [range_]
    return [NamedEntries(range_, np.sort(positions), row["round"])]


def chunked_of_row(row: dict) -> list[tuple[int, int, int]]:
    """Partition, first and last position of each chunked message of a delivery's *row*."""
    return [(row["partition"], first, last) for first, last in unpacked_pairs(row["chunks"])]


class Removal(NamedTuple):
    """The round that removed a consumer, and why."""

    round: int
    text: str


class ConsumerHistory(NamedTuple):
    """Deliveries to a consumer, by round, and when it was last removed; None if it was not."""

    deliveries: list[Delivery]
    removal: Removal | None


def read_history(layout: Layout, topic: Topic, subscription: str, consumer_id: str, after: int) -> ConsumerHistory:
    """What the rounds after *after* say of a consumer, as far as they are kept: at least until all that they delivered
    is acknowledged."""
    is_its = (pc.field("topic_id") == topic.topic_id) & (pc.field("subscription") == subscription)
    wanted = is_its & (pc.field("consumer_id") == consumer_id) & (pc.field("round") > after)
    found: dict[int, list[dict]] = {}
    removals: list[Removal] = []
    for row in as_objects(read_rows(layout.broker_table(CURSOR_LEDGER.name), COLUMNS, wanted)):
        if row["kind"] == "range" and row["status"] == PENDING and row["delivery_round"] == row["round"]:
            found.setdefault(row["round"], []).append(row)
        elif row["kind"] == "consumer" and row["is_removed"]:
            removals.append(Removal(row["round"], row["text"]))
    deliveries = [
        Delivery(
            str(topic.name),
            topic.topic_id,
            subscription,
            consumer_id,
            round_number,
            tuple(range_ for row in rows for range_ in ranges_of_row(row)),
            chunked=tuple(message for row in rows for message in chunked_of_row(row)),
        )
        for round_number, rows in sorted(found.items())
    ]
    return ConsumerHistory(deliveries, max(removals, key=lambda each: each.round, default=None))
