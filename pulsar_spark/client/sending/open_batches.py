"""The open batches of a producer, by partition (protocol.topics.batching says when they close)."""

from pulsar_spark.client.model.enums import BatchingType
from pulsar_spark.client.sending.producer_settings import ProducerSettings
from pulsar_spark.client.sending.publish_rows import Entry, Outgoing
from pulsar_spark.protocol.topics.batching import BatchContainer


class OpenBatches:
    """Of one producer, each of at most *most_bytes*. Without batching each message is an entry. Requires a lock."""

    def __init__(self, settings: ProducerSettings, partitions: list[int], most_bytes: int):
        self._delay = settings.batching_max_publish_delay_ms / 1000
        self._settings, self._most_bytes = settings, most_bytes
        self._batches: dict[int, BatchContainer[Outgoing]] = {}
        self.grow(partitions)
        self.is_waiting = False
        """Whether the last message opened a batch that :meth:`due` will close."""

    def grow(self, partitions: list[int]) -> None:
        """Add partitions."""
        settings = self._settings
        for partition in partitions if settings.batching_enabled else ():
            if partition not in self._batches:
                self._batches[partition] = BatchContainer(
                    max_messages=settings.batching_max_messages,
                    max_bytes=min(settings.batching_max_allowed_size_in_bytes, self._most_bytes),
                    is_key_based=settings.batching_type is BatchingType.KeyBased,
                )

    def add(self, partition: int, message: Outgoing, is_flush: bool, now: float) -> list[Entry]:
        """The entries that this message completes; a delayed message is an entry alone (0.32)."""
        batches, self.is_waiting = self._batches.get(partition), False
        if batches is None:
            return [Entry(partition, [message])]
        if message.deliver_at_ms is not None:
            return [*_as_entries(partition, batches.close()), Entry(partition, [message])]
        was_open, payload = batches.opened_at is not None, message.payload
        key = message.ordering_key or message.partition_key
        closed = batches.add(message, 0 if payload is None else len(payload), key, now)
        if is_flush:
            closed += batches.close()
        elif not closed:
            self.is_waiting = not was_open
        return _as_entries(partition, closed)

    def close(self) -> list[Entry]:
        """Close all batches; return their entries."""
        return [entry for at, batches in self._batches.items() for entry in _as_entries(at, batches.close())]

    def due(self, now: float) -> tuple[list[Entry], float | None]:
        """The entries whose delay has passed, and when the next one's passes."""
        due: list[Entry] = []
        wake_at: float | None = None
        for partition, batches in self._batches.items():
            if batches.opened_at is None:
                continue
            if batches.opened_at + self._delay <= now:
                due += _as_entries(partition, batches.close())
            else:
                wake_at = min(wake_at or float("inf"), batches.opened_at + self._delay)
        return due, wake_at


def _as_entries(partition: int, batches: list[list[Outgoing]]) -> list[Entry]:
    """Entries made with ``tuple.__new__``, for speed."""
    return [tuple.__new__(Entry, (partition, messages, None)) for messages in batches]
