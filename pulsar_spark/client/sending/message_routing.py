"""Which partition each message of a producer goes to, by its options (see ``protocol.topics.routing``)."""

import random
import time
from typing import Any

from pulsar_spark.client.model.enums import PartitionsRoutingMode
from pulsar_spark.client.sending.producer_settings import ProducerSettings
from pulsar_spark.client.sending.publish_rows import Outgoing
from pulsar_spark.protocol.topics.routing import RoundRobinRouter, SinglePartitionRouter, partition_for_key
from pulsar_spark.schema import Schema


class RoutedMessage:
    """An unsent message, for a message router."""

    __slots__ = ("_message", "_schema")

    def __init__(self, message: Outgoing, schema: Schema):
        self._message = message
        self._schema = schema

    def data(self) -> bytes:
        return bytes(self._message.payload or b"")

    def value(self) -> Any:
        return self._schema.decode_message(self)

    def has_null_value(self) -> bool:
        return self._message.payload is None

    def properties(self) -> dict[str, str]:
        return dict(self._message.properties or ())

    def partition_key(self) -> str:
        return self._message.partition_key or ""

    def ordering_key(self) -> str:
        return self._message.ordering_key or ""

    def event_timestamp(self) -> int:
        return self._message.event_ms or 0

    def length(self) -> int:
        return len(self.data())


class MessageRouting:
    """*partitions* are the topic's indexes, -1 alone without partitions."""

    def __init__(self, settings: ProducerSettings, partitions: list[int], topic_name: str):
        self._settings, self._partitions, self._topic_name = settings, partitions, topic_name
        start = random.randrange(len(partitions))
        self._router: SinglePartitionRouter | RoundRobinRouter
        if settings.message_routing_mode is PartitionsRoutingMode.UseSinglePartition:
            self._router = SinglePartitionRouter(start, scheme=settings.hashing_scheme)
        else:
            self._router = RoundRobinRouter(
                start=start,
                scheme=settings.hashing_scheme,
                clock_ms=(lambda: time.monotonic_ns() // 1_000_000) if settings.batching_enabled else None,
                switch_ms=settings.batching_max_publish_delay_ms,
            )

    def grow(self, partitions: list[int]) -> None:
        self._partitions = partitions

    def partition_for_key(self, partition_key: str) -> int:
        """The partition of a key; the application's router is not called."""
        count = len(self._partitions)
        if count == 1:
            return self._partitions[0]
        return self._partitions[partition_for_key(partition_key, count, self._settings.hashing_scheme)]

    def partition(self, message: Outgoing) -> int:
        """The partition of the message; ValueError if the application's router returns an invalid one."""
        partitions, router = self._partitions, self._settings.message_router  # one snapshot for all that follows
        if len(partitions) == 1:
            return partitions[0]
        if router is None:
            return partitions[self._router.partition(message.partition_key, len(partitions))]
        index = int(router(RoutedMessage(message, self._settings.schema), len(partitions)))
        if not 0 <= index < len(partitions):
            raise ValueError(
                f"the message router chose partition {index}: topic {self._topic_name!r} has 0 to {len(partitions) - 1}"
            )
        return partitions[index]
