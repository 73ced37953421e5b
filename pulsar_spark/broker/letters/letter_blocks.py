"""Letters as columns of what differs, without an object for each."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.broker.letters.chunked_letters import Whole, expanded
from pulsar_spark.broker.letters.letter_orders import Order
from pulsar_spark.protocol.acknowledgement.positions import distinct
from pulsar_spark.protocol.topics.routing import RoundRobinRouter
from pulsar_spark.table_specs import MESSAGES


class Letters(NamedTuple):
    """Letters of a cursor as columns: order, message (position, batch index or -1, row), new properties, and the whole
    if it is chunked."""

    orders: Sequence[Order]
    positions: np.ndarray
    indexes: np.ndarray
    messages: pa.Table
    sizes: np.ndarray
    properties: Sequence[list[tuple[str, str]]]
    wholes: Sequence[Whole | None]

    @property
    def number(self) -> int:
        return len(self.orders)

    def part(self, begin: int, end: int) -> "Letters":
        return Letters._make(column[begin:end] for column in self)

    def up_to(self, letters: int, size: int) -> int:
        """How many letters, at least one, reach *letters* or *size* bytes."""
        return min(self.number, letters, int(np.searchsorted(np.cumsum(self.sizes), size)) + 1)

    def partitions(self, router: RoundRobinRouter) -> list[int]:
        """The partition of each letter, by key or in turn."""
        keys = self.messages["partition_key"].to_pylist()
        return [order.partitions[router.partition(key, len(order.partitions))] for order, key in zip(self.orders, keys)]

    def of_requests(self, name: str) -> list:
        """An attribute of each letter's order, read once per request."""
        by_identity = {id(order.reconsume_later): order for order in self.orders}
        values = {reconsume_later: getattr(order, name) for reconsume_later, order in by_identity.items()}
        return [values[id(order.reconsume_later)] for order in self.orders]


def rows_of(blocks: Sequence[Letters], publish_id: str, now: int, partitions: Sequence[int]) -> pa.Table:
    """The rows of a publish commit at *now*: messages with their letters' changes, as next entries of their
    partitions."""
    kept, counts = expanded(
        pa.concat_tables(block.messages for block in blocks), [whole for block in blocks for whole in block.wholes]
    )
    letters, of_letter = kept.num_rows, np.repeat(np.arange(len(partitions)), counts)

    def of_each(values: Iterable) -> list:
        values = list(values)
        return [values[number] for number in of_letter.tolist()] if letters > len(values) else values

    partitions = of_each(partitions)
    changed = {
        "publish_id": [publish_id] * letters,
        "publish_time": [now] * letters,
        "partition": partitions,
        "entry_id": _entry_ids(np.array(partitions)),
        "batch_index": [None] * letters,
        "batch_size": [1] * letters,
        "sequence_id": [None] * letters,
        "deliver_at_time": of_each(chain.from_iterable(block.of_requests("deliver_at") for block in blocks)),
        "producer_name": of_each(chain.from_iterable(block.of_requests("producer_name") for block in blocks)),
        "properties": of_each(chain.from_iterable(block.properties for block in blocks)),
    }
    indexes = np.concatenate([block.indexes for block in blocks])[of_letter]
    speaks_for_itself, may_be_chunk = pa.array(indexes <= 0), pa.array(indexes < 0)
    changed["uuid"] = pc.if_else(may_be_chunk, kept["uuid"], pa.scalar(None, pa.string()))
    changed["sticky_key_hash"] = pc.if_else(speaks_for_itself, kept["sticky_key_hash"], pa.scalar(None, pa.int32()))
    return pa.table(
        [
            pa.array(changed[field.name], field.type) if field.name in changed else kept[field.name].cast(field.type)
            for field in MESSAGES.schema
        ],
        MESSAGES.schema,
    )


def _entry_ids(partitions: np.ndarray) -> np.ndarray:
    found = np.empty(len(partitions), np.int64)
    for partition in distinct(partitions):
        of_partition = np.flatnonzero(partitions == partition)
        found[of_partition] = np.arange(len(of_partition))
    return found
