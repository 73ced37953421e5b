"""Collects and sends a consumer's acknowledgements and negative acknowledgements on one topic partition.

Rule: PersistentAcknowledgmentsGroupingTracker, NegativeAcksTracker (semantics 3.1-3.8, 4.15, 4.16), without the grid of
deadlines (4.20).
"""

import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

from pulsar_spark.client.acks.acknowledgements import AckGroup
from pulsar_spark.client.acks.given_back import SOON_MS, GivenBack
from pulsar_spark.client.acks.pending_acks import PendingAcks
from pulsar_spark.client.acks.receipts import Receipt
from pulsar_spark.client.receiving.key_order import KeyOrder
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.link.channel import Channel
from pulsar_spark.link.outbox import SPACING
from pulsar_spark.protocol.redelivery.letters import ReconsumeLater
from pulsar_spark.storage.clock import monotonic


class Grouping(NamedTuple):
    """How acknowledgements are sent; with ``has_receipts`` each waits for the broker."""

    group_time_ms: int = 100
    max_group_size: int = 1000
    is_batch_index: bool = True
    has_receipts: bool = False

    @property
    def is_immediate(self) -> bool:
        return not self.group_time_ms or self.max_group_size <= 1 or self.has_receipts


class _Gathering:
    """Asks the current channel to take rows with its commits."""

    _used: tuple[Channel, Callable[[], list[dict]]]

    def __init__(self, channel: Channel, take_rows: Callable[[], list[dict]]):
        self._take_rows = take_rows
        self.switch(channel)

    def switch(self, channel: Channel) -> None:
        """The former channel gets no more rows."""
        self._used = channel, lambda: self._take_rows() if channel is self._used[0] else []

    def ask(self, delay: float, *, is_urgent: bool = False) -> None:
        channel, source = self._used
        channel.gather(source, delay, is_urgent=is_urgent)


class AcknowledgementTracker:
    """``group`` requires *lock*; ``make(kind, **columns)`` makes a request row; ``early_rows()`` gives rows to send
    with others; *key_order* learns of entries given back."""

    def __init__(
        self,
        channel: Channel,
        lock: threading.Lock,
        make: Callable[..., dict],
        grouping: Grouping,
        early_rows: Callable[[], list[dict]] = list,
        key_order: KeyOrder | None = None,
    ):
        self._channel = channel
        self._lock = lock
        self._make, self._early_rows = make, early_rows
        self._grouping = grouping
        self.group = AckGroup(grouping.is_batch_index)
        self.pending = PendingAcks()
        self._key_order = key_order
        self.given_back = GivenBack()
        self._is_gathering = self._is_full = False
        self._receipt: Receipt | None = None
        self._ended_by: PulsarSparkError | None = None
        self._gathering = _Gathering(channel, self._take_all_rows)

    def switch_channel(self, channel: Channel) -> None:
        """Send to the broker of another bundle from now on."""
        with self._lock:
            self._channel = channel
            self._gathering.switch(channel)
        self._gathering.ask(SPACING)

    def acknowledge(
        self,
        position: int,
        batch_index: int,
        bits: int,
        properties: dict[str, str] | None = None,
        *,
        is_cumulative: bool = False,
    ) -> tuple[bool | int, Receipt | None]:
        """Acknowledge one message, an entry (batch index -1), or all up to it. Return the result of the
        :class:`AckGroup`, and the receipt."""
        acknowledge = self.group.acknowledge_cumulative if is_cumulative else self.group.acknowledge
        return self._add(lambda: acknowledge(position, batch_index, bits), properties)

    def reconsume_later(
        self, position: int, batch_index: int, bits: int, letter: ReconsumeLater
    ) -> tuple[bool | int, list[dict]]:
        """Acknowledge one message, or up to it, in the request for its letter. Return the result and the rows to send
        at once."""
        with self._lock:
            if self._ended_by is not None:
                raise self._ended_by
            earlier = self._take()
            result, ack_set = self.group.acknowledge_apart(
                position, batch_index, bits, is_cumulative=letter.is_cumulative
            )
        receipt = {"receipt": "true"} if self._grouping.has_receipts else {}
        return result, [
            *earlier,
            self._make(
                "reconsume_later",
                first=position,
                last=position,
                ack_set=ack_set,
                properties=letter.request_properties() | receipt,
            ),
        ]

    def _add(
        self, acknowledge: Callable[[], bool | int], properties: dict[str, str] | None
    ) -> tuple[bool | int, Receipt | None]:
        with self._lock:
            if self._ended_by is not None:
                self._forget()
                if self._grouping.has_receipts:
                    raise self._ended_by
                return False, None
            self._process_pending()
            earlier = self._take() if properties else []
            result = acknowledge()
            waiting = len(self.group)
            if self._grouping.has_receipts and waiting and self._receipt is None:
                self._receipt = Receipt()
            receipt = self._receipt if waiting else None
            rows = earlier + self._take(properties) if properties else []
            is_first = waiting > 0 and not self._is_gathering and not properties
            self._is_gathering |= is_first
            is_full = waiting >= self._grouping.max_group_size and not self._is_full
            self._is_full |= is_full
            self._set_room()
        if rows:
            self._channel.submit(rows, is_urgent=True)
        if is_first or is_full:
            delay = self._grouping.group_time_ms / 1000
            self._gathering.ask(min(delay, SPACING) if is_full else delay, is_urgent=self._grouping.is_immediate)
        return result, receipt

    def process_pending(self) -> None:
        self._add(lambda: False, None)

    def _process_pending(self) -> None:
        if not self.pending:
            return
        for positions, indexes, delivered in self.pending.take():
            if indexes:
                self.group.acknowledge_indexes(positions[0], indexes, delivered)
            else:
                self.group.acknowledge_entries(positions)
        self._set_room()

    def _set_room(self) -> None:
        if self._is_gathering:
            left = max(0, self._grouping.max_group_size - len(self.group))
            self.pending.room = sys.maxsize if self._is_full else left

    def current_group(self) -> AckGroup:
        """The group, with all acknowledgements so far. Requires the lock."""
        self._process_pending()
        return self.group

    def give_back(
        self,
        positions: set[int],
        delay_ms: int,
        sticky_hash: int | None = None,
        *,
        are_dead: bool = False,
        is_soon: bool = False,
    ) -> None:
        """Give entries back after a delay; *sticky_hash* is that of a single one. Entries that *are_dead* delay no
        others: they become letters. *is_soon*: unless the delay is long, they come again."""
        now = monotonic()
        with self._lock:
            if self._ended_by is not None:
                return
            next_time, requests = self.given_back.next_time, self.given_back.add(positions, delay_ms, now)
            if self._key_order is not None and not are_dead:
                is_soon = is_soon and delay_ms <= SOON_MS
                self._key_order.give_back(positions, requests, sticky_hash, is_soon=is_soon)
            if requests.time < next_time:
                spacing = SPACING if delay_ms > SOON_MS and not self._grouping.is_immediate else 0.0
                self._gathering.ask(requests.time + spacing - now)

    def give_back_unseen(self, position: int, sticky_hash: int) -> None:
        """Give back an entry that the application did not see. Requires the lock."""
        next_time, requests = self.given_back.next_time, self.given_back.add_unseen(position, monotonic())
        if self._key_order is not None:
            self._key_order.give_back((position,), requests, sticky_hash)
        if requests.time < next_time:
            self._gathering.ask(SPACING)

    def take_rows(self, *, is_last: bool = False) -> list[dict]:
        """Take the acknowledgements, and the entries to give back by now; all of these if *is_last*."""
        now = monotonic()
        with self._lock:
            self._is_gathering = self._is_full = False
            self.pending.room = 0
            rows = self._take()
            given_back, under_way = self.given_back.take(now, is_last=is_last)
            if self._key_order is not None:
                for requests in under_way:
                    self._channel.when_committed(requests.committed)
            if self.given_back:
                self._gathering.ask(self.given_back.next_time - now)
        return rows + [self._make("negative_ack", **columns) for columns in given_back]

    def _take_all_rows(self) -> list[dict]:
        with self._lock:
            left = self.given_back.next_time - monotonic()
            if 0 < left <= SPACING and not (self._is_full or self._grouping.is_immediate):
                self._gathering.ask(left)  # acknowledgements go with what is to be given back in a moment
                return []
        rows = self.take_rows()
        return rows + self._early_rows() if rows else rows

    def forget_given_back(self) -> None:
        """Forget entries given back. Requires the lock."""
        self.given_back.clear()
        if self._key_order is not None:
            self._key_order.forget()

    def forget(self) -> None:
        """Forget acknowledgements: the cursor was moved. Requires the lock."""
        self._forget()
        receipt, self._receipt = self._receipt, None
        if receipt is not None:
            receipt.expect([])

    def _forget(self) -> None:
        self.pending.clear()
        self.group.clear()
        self.forget_given_back()

    def take_acknowledgements(self) -> list[dict]:
        """Requires the lock."""
        rows = self._take()
        self.group.clear()
        return rows

    def end(self, error: PulsarSparkError) -> None:
        """Drop acknowledgements from now on; waiting callers get *error*."""
        with self._lock:
            self._ended_by = error
            self._forget()
        self.fail(error)

    def fail(self, error: PulsarSparkError) -> None:
        """Fail the open receipt."""
        with self._lock:
            self.pending.room = 0
            receipt, self._receipt = self._receipt, None
        if receipt is not None:
            receipt.fail(error)

    def _take(self, properties: dict[str, str] | None = None) -> list[dict]:
        self._process_pending()
        given = {f"property.{name}": value for name, value in (properties or {}).items()}
        receipt, self._receipt = self._receipt, None
        if receipt is not None:
            given["receipt"] = "true"
        rows = [
            self._make(each.kind, first=each.first, last=each.last, ack_set=each.ack_set, properties=given or None)
            for each in self.group.take()
        ]
        if receipt is not None:
            self._channel.expect(receipt.expect([row["request_id"] for row in rows]))
        return rows
