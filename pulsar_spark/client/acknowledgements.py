"""What a consumer has acknowledged on one topic partition and not yet sent.

Rule: PersistentAcknowledgmentsGroupingTracker of Pulsar's client (semantics 3.1-3.6). Those that gathered go as ranges:
the cumulative one first, then whole entries, then batches with the indexes left. The messages of a batch share one set
of unacknowledged indexes; it is kept here as the bits of an integer. Our difference is semantics 0.23: batch index
acknowledgements are on unless switched off.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pulsar_spark.protocol.ack_set import of_bits
from pulsar_spark.protocol.positions import ranges_of


class Acknowledgement(NamedTuple):
    """One request to the broker: ``ack`` or ``cumulative_ack`` of positions; ``ack_set`` has the indexes left of entry
    ``last``."""

    kind: str
    first: int | None
    last: int
    ack_set: list[int] | None


class AckGroup:
    """The acknowledgements of one partition; the caller holds a lock."""

    def __init__(self, is_batch_index: bool = True):
        self._is_batch_index = is_batch_index
        self.clear()

    def clear(self) -> None:
        """Forget everything: the cursor was moved, or the subscription was joined again."""
        self._entries: set[int] = set()
        self._unacked_bits: dict[int, int] = {}
        self._changed_batches: set[int] = set()
        self._cumulative = -1
        self._cumulative_bits = 0
        self._is_cumulative_sent = True

    def __len__(self) -> int:
        return len(self._entries) + len(self._changed_batches) + (not self._is_cumulative_sent)

    def acknowledge(self, position: int, batch_index: int, delivered_bits: int) -> bool:
        """Acknowledge a message, or with batch index -1 a whole entry; True when nothing of the entry is left.

        *delivered_bits* are the indexes the entry was delivered with.
        """
        if batch_index >= 0:
            return self.acknowledge_indexes(position, 1 << batch_index, delivered_bits)
        self._unacked_bits.pop(position, None)
        self._changed_batches.discard(position)
        self._entries.add(position)
        return True

    def acknowledge_indexes(self, position: int, bits: int, delivered_bits: int) -> bool:
        """The same of the messages of a batch whose indexes are set in *bits*."""
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
        """Acknowledge everything up to and including a message; the last position nothing of which is left."""
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
        """Acknowledge a message in a request of its own, with nothing waiting: what :meth:`acknowledge` or
        :meth:`acknowledge_cumulative` say, and the ack set of the request. It names the message's index also where
        acknowledgements of single messages of a batch are off."""
        known, left = self._unacked_bits.get(position, delivered_bits), 0
        if batch_index >= 0:
            left = known >> (batch_index + 1) << (batch_index + 1) if is_cumulative else known & ~(1 << batch_index)
        done = (self.acknowledge_cumulative if is_cumulative else self.acknowledge)(
            position, batch_index, delivered_bits
        )
        self.take()
        return done, _words(left) if left else None

    def left_of(self, position: int, delivered_bits: int) -> int:
        """Of a batch that arrives with these indexes unacknowledged, those that were not acknowledged before."""
        if position < self._cumulative or position in self._entries:
            return 0
        if position == self._cumulative:
            return self._cumulative_bits & delivered_bits
        return self._unacked_bits.get(position, delivered_bits) if self._is_batch_index else delivered_bits

    def new_of(self, positions: list[int]) -> list[bool] | None:
        """Which of the entries that arrive, and are no batches, were not acknowledged before; None for all."""
        if not positions or (self._entries.isdisjoint(positions) and min(positions) > self._cumulative):
            return None
        done = self._cumulative - bool(self._cumulative_bits)
        return [position > done and position not in self._entries for position in positions]

    def deliver(self, position: int, delivered_bits: int) -> None:
        """A batch arrives (again) with these indexes unacknowledged. What was acknowledged here before stays so, unless
        only whole entries can be."""
        left = self._unacked_bits.pop(position, None)
        if left is None or not self._is_batch_index:
            return
        if left & delivered_bits:
            self._unacked_bits[position] = left & delivered_bits
        else:
            self._changed_batches.discard(position)
            self._entries.add(position)

    def skip(self, position: int, delivered_bits: int, below: int) -> None:
        """Count the batch indexes under *below* as acknowledged: a seek went past them."""
        left = delivered_bits >> below << below
        if left:
            self._unacked_bits[position] = left

    def take(self) -> list[Acknowledgement]:
        """What is to be sent now, in order; nothing waits afterwards."""
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
