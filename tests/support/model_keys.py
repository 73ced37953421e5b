"""Key_Shared in the reference broker: whose an entry is, and whether it has to wait for others of its key.

Who owns which hashes is said by the selectors, which are pure rules and shared with the package. The rest is written
once more, entry by entry: a hash that moved drains at the consumer that had it (2.41, 0.22), or, by the rule of 3.2.3,
a newcomer gets nothing behind the place where it joined (2.32-2.34). A cursor has this while consumers of Key_Shared
are connected; the first of them and the policies of that moment decide how it goes on until all have left (2.4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pulsar_spark.protocol.keys.hash_ranges import OwnedRange, owner
from pulsar_spark.protocol.keys.selectors import (
    AutoSplit,
    ConsistentHashing,
    ConsistentHashing4,
    Member,
    Selector,
    Sticky,
)
from pulsar_spark.protocol.keys.sticky_key import sticky_key, sticky_key_hash
from pulsar_spark.protocol.policies.policies import POLICIES

KEY_SHARED = "KeyShared"
AUTO_SPLIT, STICKY = "AUTO_SPLIT", "STICKY"

PREFIXES = ("subscription_key_shared_", "key_shared_")
DEFAULTS = {name: value for name, value in POLICIES.items() if name.startswith(PREFIXES)}
"""The policies of Key_Shared."""


class Key(NamedTuple):
    """What a message carries; an entry goes by its first one's (2.21, 2.22)."""

    partition_key: str | None = None
    ordering_key: str | None = None
    is_base64: bool = False

    def hash_code(self) -> int:
        ordering_key = None if self.ordering_key is None else self.ordering_key.encode()
        return sticky_key_hash(sticky_key(self.partition_key, ordering_key=ordering_key, is_base64=self.is_base64))


@dataclass
class KeyShared:
    """What a Key_Shared subscription knows beside its entries; *recently_joined* is empty unless *is_classic*."""

    selector: Selector
    mode: str
    allows_out_of_order: bool
    is_classic: bool
    recently_joined: dict[str, int] = field(default_factory=dict)
    owned: list[OwnedRange] = field(default_factory=list)

    def join(self, member: Member, *, behind_all: int, mark_delete: int) -> None:
        """ConsumerAssignError where the selector cannot give it what it asks for. *behind_all* is the first place
        behind everything that was ever handed out (2.32)."""
        is_first = not self.owned
        self.selector = self.selector.joined(member)
        self.owned = self.selector.owned()
        if self.is_classic and not self.allows_out_of_order and not is_first and behind_all - mark_delete > 1:
            self.recently_joined[member.consumer_id] = behind_all

    def leave(self, consumer_id: str, *, consumers_left: int) -> None:
        self.selector = self.selector.left(consumer_id)
        self.owned = self.selector.owned()
        self.recently_joined.pop(consumer_id, None)
        if consumers_left == 1:
            self.recently_joined.clear()

    def forget_joined(self, mark_delete: int) -> None:
        """From the oldest on, stopping at the first that mark-delete has not come to (2.34)."""
        for consumer_id in list(self.recently_joined):
            if mark_delete + 1 < self.recently_joined[consumer_id]:
                return
            del self.recently_joined[consumer_id]

    def refuses(self, properties: Mapping[str, str]) -> bool:
        """May a consumer that asks for this not join? 3.2.3 does not compare, and lets it go by what holds (2.4)."""
        asked = (mode_of(properties), asks_out_of_order(properties))
        return not self.is_classic and asked != (self.mode, self.allows_out_of_order)

    def owner_of(self, hash_code: int) -> str | None:
        return owner(self.owned, self.selector.axis, hash_code)


def new_key_shared(properties: Mapping[str, str], limits: Mapping[str, int]) -> KeyShared:
    """As the first consumer asks for, by the policies of now (2.26, 2.29, 0.2-0.4, 0.11)."""
    mode = mode_of(properties)
    points = limits["subscription_key_shared_consistent_hashing_replica_points"]
    is_classic = limits["subscription_key_shared_use_classic_persistent_implementation"] > 0
    if mode == STICKY:
        selector: Selector = Sticky(is_exact=not is_classic)
    elif not limits["subscription_key_shared_use_consistent_hashing"]:
        selector = AutoSplit()
    elif limits["subscription_key_shared_one_owner_per_point"]:
        selector = ConsistentHashing4(points=points)
    else:
        selector = ConsistentHashing(points=points)
    return KeyShared(selector, mode, asks_out_of_order(properties), is_classic)


def mode_of(properties: Mapping[str, str]) -> str:
    return properties.get("key_shared_mode", AUTO_SPLIT)


def asks_out_of_order(properties: Mapping[str, str]) -> bool:
    return properties.get("allow_out_of_order_delivery") == "true"


def hash_ranges_of(properties: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """The sticky ranges that a consumer asks for."""
    pairs = [pair.split("-") for pair in properties.get("hash_ranges", "").split(",") if pair]
    return tuple((int(start), int(end)) for start, end in pairs)


def look_ahead_limit(limits: Mapping[str, int], consumers: int) -> int:
    """Behind so many entries that wait nothing is read; 0 is no limit."""
    per_consumer = consumers * limits["key_shared_look_ahead_msg_in_replay_threshold_per_consumer"]
    per_subscription = limits["key_shared_look_ahead_msg_in_replay_threshold_per_subscription"]
    return min((each for each in (per_consumer, per_subscription) if each), default=0)
