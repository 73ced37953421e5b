"""The unsent acknowledgements of a consumer on one topic partition.

Rule: PersistentAcknowledgmentsGroupingTracker (semantics 3.1-3.6), with batch index acknowledgements by default
(semantics 0.23). The cumulative one is sent first, then whole entries, then batches.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pulsar_spark.protocol.acknowledgement.ack_set import of_bits
from pulsar_spark.protocol.acknowledgement.positions import ranges_of


class Acknowledgement(NamedTuple):
    """An ``ack`` or ``cumulative_ack`` of positions. ``ack_set`` has the unacknowledged indexes of entry ``last``."""

    kind: str
    first: int | None
    last: int
    ack_set: list[int] | None


class AckGroup:
    """Of one partition; the caller holds a lock."""

    def __init__(self, is_batch_index: bool = True):
        self._is_batch_index = is_batch_index
        self.clear()

    def clear(self) -> None:
        self._entries: set[int] = set()
        self._unacked_bits: dict[int, int] = {}
        self._changed_batches: set[int] = set()
        self._cumulative = -1
        self._cumulative_bits = 0
        self._is_cumulative_sent = True

    def __len__(self) -> int:
        return len(self._entries) + len(self._changed_batches) + (not self._is_cumulative_sent)

    def acknowledge(self, position: int, batch_index: int, delivered_bits: int) -> bool:
        """Acknowledge a message, or with batch index -1 a whole entry; True once the entry is complete.
        *delivered_bits* are the indexes that the entry was delivered with."""
        if batch_index >= 0:
            return self.acknowledge_indexes(position, 1 << batch_index, delivered_bits)
        self._unacked_bits.pop(position, None)
        self._changed_batches.discard(position)
        self._entries.add(position)
        return True

    def acknowledge_indexes(self, position: int, bits: int, delivered_bits: int) -> bool:
        """:meth:`acknowledge` the messages of a batch with indexes set in *bits*."""
        left = self._unacked_bits.get(position, delivered_bits) & ~bits
        if not left:
            return self.acknowledge(position, -1, delivered_bits)
        self._unacked_bits[position] = left
        if self._is_batch_index:
            self._changed_batches.add(position)
        return False

    def acknowledge_entries(self, positions: Iterable[int]) -> None:
        """Acknowledge entries that are no batches."""
        self._entries.update(positions)

    def acknowledge_cumulative(self, position: int, batch_index: int, delivered_bits: int) -> int:
        """Acknowledge up to and including a message; return the last complete position."""
        bits = 0
        if batch_index >= 0:
            bits = self._unacked_bits.get(position, delivered_bits) >> (batch_index + 1) << (batch_index + 1)
            if bits:
                self._unacked_bits[position] = bits
                if not self._is_batch_index:
                    position, bits = position - 1, 0
        is_more = position > self._cumulative or (
            position == self._cumulative and self._cumulative_bits and bits < self._cumulative_bits
        )
        if position >= 0 and is_more:
            self._cumulative, self._cumulative_bits, self._is_cumulative_sent = position, bits, False
            done = position - bool(bits)
            self._entries = {entry for entry in self._entries if entry > done}
            self._changed_batches = {entry for entry in self._changed_batches if entry > position}
            self._unacked_bits = {entry: left for entry, left in self._unacked_bits.items() if entry > done}
        return self._cumulative - bool(self._cumulative_bits)

    def acknowledge_apart(
        self, position: int, batch_index: int, delivered_bits: int, *, is_cumulative: bool
    ) -> tuple[bool | int, list[int] | None]:
        """Acknowledge a message in its own request. Return the result, and the request's ack set."""
        known, left = self._unacked_bits.get(position, delivered_bits), 0
        if batch_index >= 0:
            left = known >> (batch_index + 1) << (batch_index + 1) if is_cumulative else known & ~(1 << batch_index)
        done = (self.acknowledge_cumulative if is_cumulative else self.acknowledge)(
            position, batch_index, delivered_bits
        )
        self.take()
        return done, _words(left) if left else None

    def left_of(self, position: int, delivered_bits: int) -> int:
        """The unacknowledged indexes of a batch that arrives with *delivered_bits*."""
        if position < self._cumulative or position in self._entries:
            return 0
        if position == self._cumulative:
            return self._cumulative_bits & delivered_bits
        return self._unacked_bits.get(position, delivered_bits) if self._is_batch_index else delivered_bits

    def new_of(self, positions: list[int]) -> list[bool] | None:
        """Which arriving entries (no batches) are unacknowledged; None for all."""
        if not positions or (self._entries.isdisjoint(positions) and min(positions) > self._cumulative):
            return None
        done = self._cumulative - bool(self._cumulative_bits)
        return [position > done and position not in self._entries for position in positions]

    def deliver(self, position: int, delivered_bits: int) -> None:
        """A batch arrives (again). Indexes acknowledged here stay so, unless only whole entries count."""
        left = self._unacked_bits.pop(position, None)
        if left is None or not self._is_batch_index:
            return
        if left & delivered_bits:
            self._unacked_bits[position] = left & delivered_bits
        else:
            self._changed_batches.discard(position)
            self._entries.add(position)

    def skip(self, position: int, delivered_bits: int, below: int) -> None:
        """Count batch indexes below *below* as acknowledged."""
        left = delivered_bits >> below << below
        if left:
            self._unacked_bits[position] = left

    def take(self) -> list[Acknowledgement]:
        """Take the requests to send, in order."""
        requests = []
        if not self._is_cumulative_sent:
            ack_set = _words(self._cumulative_bits) if self._cumulative_bits else None
            requests.append(Acknowledgement("cumulative_ack", None, self._cumulative, ack_set))
            self._is_cumulative_sent = True
        requests += [Acknowledgement("ack", first, last, None) for first, last in ranges_of(sorted(self._entries))]
        requests += [
            Acknowledgement("ack", position, position, _words(self._unacked_bits[position]))
            for position in sorted(self._changed_batches)
        ]
        self._entries = set()
        self._changed_batches = set()
        return requests


def _words(bits: int) -> list[int]:
    return list(of_bits(bits))
