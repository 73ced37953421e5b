"""What a broker keeps of a cursor between rounds: its consumers, its settings, and its entries."""

from functools import cached_property

import numpy as np

from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.entries import CursorEntries
from pulsar_spark.protocol.keys.hash_ranges import OwnedRange
from pulsar_spark.protocol.keys.kept_owners import kept_properties
from pulsar_spark.protocol.keys.key_shared import KeySharedRules
from pulsar_spark.protocol.keys.selectors import Selector
from pulsar_spark.protocol.subscriptions.membership import KEY_SHARED, SINGLE_ACTIVE
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey


class Cursor(CursorEntries):
    """A subscription on one partition. On Key_Shared with consumers, ``key_shared`` has the first one's rules,
    ``selector`` the owners of hashes, and ``recently_joined`` join positions, in order (2.32, classic only)."""

    def __init__(
        self, key: CursorKey, topic: str, mark_delete: int, read_position: int, subscription_type: str | None = None
    ):
        super().__init__(mark_delete, read_position)
        self.key, self.topic, self.subscription_type = key, topic, subscription_type
        self.consumers: dict[str, Consumer] = {}
        self.active_id: str | None = None
        self.reads_after = 0
        self.last_active: int | None = None
        self.is_blocked = self.is_blocked_by_broker = False
        self.dead_letters: dict[str, str] = {}
        self.reads_compacted = False
        """Did the consumers that connected last ask for the compacted view?"""
        self.joined = 0
        self.key_shared: KeySharedRules | None = None
        self.recently_joined: dict[str, int] = {}
        self.selector = None
        self.at_others: tuple[Selector | None, np.ndarray] | None = None
        """Positions of pending entries at other consumers than their owners by a selector; see key_shared.awaited."""
        self.msg_out_counter = self.msg_redeliver_counter = self.msg_ack_counter = self.msg_dead_counter = 0
        self.nothing_found_at: tuple | None = None
        """How things stood when a Key_Shared round found nothing to hand out (see candidates)."""

    @property
    def is_single_active(self) -> bool:
        return self.subscription_type in SINGLE_ACTIVE

    @property
    def is_key_shared(self) -> bool:
        return self.subscription_type == KEY_SHARED

    @property
    def active(self) -> Consumer | None:
        """The consumer that receives, on Exclusive and Failover."""
        return None if self.active_id is None else self.consumers.get(self.active_id)

    @property
    def key_shared_mode(self) -> str | None:
        """AUTO_SPLIT or STICKY; None unless Key_Shared with consumers."""
        return self.key_shared.mode if self.key_shared else None

    @property
    def allows_out_of_order(self) -> bool:
        """May entries of one key overtake each other? As the first consumer of Key_Shared wanted."""
        return self.key_shared is not None and self.key_shared.allows_out_of_order

    @property
    def selector(self) -> Selector | None:
        """The owners of hashes; None unless Key_Shared with consumers."""
        return self._selector

    @selector.setter
    def selector(self, selector: Selector | None) -> None:
        self._selector = selector
        self.__dict__.pop("owned", None)
        self.__dict__.pop("hash_ranges", None)
        self.__dict__.pop("kept_properties", None)

    @cached_property
    def owned(self) -> list[OwnedRange]:
        """Hash ranges and their owners, by start; empty without a selector."""
        return self.selector.owned() if self.selector else []

    @cached_property
    def hash_ranges(self) -> dict[str, list[tuple[int, int]]]:
        """Hash ranges (start, end) by consumer; shared ones are listed for each."""
        ranges: dict[str, list[tuple[int, int]]] = {}
        for owned in self.owned:
            ranges.setdefault(owned.consumer_id, []).append((owned.start, owned.end))
        return ranges

    @cached_property
    def kept_properties(self) -> dict[str, dict[str, str]]:
        """What rows store of each consumer's hashes beside ranges."""
        return {each: kept_properties(self.selector, each) for each in self.consumers} if self.selector else {}

    @property
    def has_unacked_limits(self) -> bool:
        """Do limits of unacknowledged messages apply? On Shared and Key_Shared, without DataFrame consumers."""
        return not self.is_single_active and all(consumer.has_unacked_limits for consumer in self.consumers.values())

    @property
    def max_redeliver_count(self) -> int:
        return int(self.dead_letters.get("max_redeliver_count", 0))
