"""The rules of a Key_Shared subscription: what consumers request, what the first one fixes, and who joined recently.

Rules: KeySharedMeta, PersistentSubscription.addConsumer, PersistentStickyKeyDispatcherMultipleConsumers; semantics 2.4,
2.29, 2.32-2.35, 0.4, 0.11, 0.22. They hold until the last consumer leaves."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from pulsar_spark.errors import InvalidConfiguration, shown
from pulsar_spark.protocol.keys.selectors import (
    POINTS,
    AutoSplit,
    ConsistentHashing,
    ConsistentHashing4,
    Member,
    Selector,
    Sticky,
)
from pulsar_spark.protocol.keys.sticky_key import DEFAULT_RANGE_SIZE
from pulsar_spark.protocol.policies.policies import MOST_INT32, policy_number
from pulsar_spark.protocol.request_properties import is_true

AUTO_SPLIT, STICKY = "AUTO_SPLIT", "STICKY"
MODES = (AUTO_SPLIT, STICKY)

_RANGE = re.compile("(-?[0-9]{1,10})-(-?[0-9]{1,10})", re.ASCII)


class KeySharedMeta(NamedTuple):
    """What a consumer requests as it subscribes."""

    mode: str = AUTO_SPLIT
    allows_out_of_order: bool = False
    ranges: tuple[tuple[int, int], ...] = ()


class KeySharedRules(NamedTuple):
    """The rules while consumers are connected: mode and order of the first consumer, and the policies of these names
    when it connected."""

    mode: str = AUTO_SPLIT
    allows_out_of_order: bool = False
    use_consistent_hashing: int = 1
    consistent_hashing_replica_points: int = POINTS
    one_owner_per_point: int = 0
    use_classic_persistent_implementation: int = 0

    @property
    def is_classic(self) -> bool:
        """Whether the rule of recently joined consumers, as before 4.0, keeps the order instead of draining hashes."""
        return self.use_classic_persistent_implementation > 0

    def properties(self) -> dict[str, str]:
        """The policies, as the subscription's row has them."""
        return {name: str(value) for name, value in zip(RULES, self[-len(RULES) :], strict=True)}


RULES = tuple(f"subscription_key_shared_{field}" for field in KeySharedRules._fields[2:])
"""The policies of Key_Shared subscriptions."""


def key_shared_meta(properties: Mapping[str, str]) -> KeySharedMeta:
    """Parse the properties of a subscribe request; :class:`InvalidConfiguration` for invalid ones.

    >>> key_shared_meta({"key_shared_mode": "STICKY", "hash_ranges": "0-9,20-29"})
    KeySharedMeta(mode='STICKY', allows_out_of_order=False, ranges=((0, 9), (20, 29)))
    """
    mode = properties.get("key_shared_mode") or AUTO_SPLIT
    if mode not in MODES:
        raise InvalidConfiguration(f"key_shared_mode {shown(mode)} is none of {', '.join(MODES)}")
    allows_out_of_order = is_true(properties, "allow_out_of_order_delivery")
    return KeySharedMeta(mode, allows_out_of_order, hash_ranges_of(properties.get("hash_ranges") or ""))


def hash_ranges_of(text: str) -> tuple[tuple[int, int], ...]:
    """Parse the text of hash ranges, assignable or not; :class:`InvalidConfiguration` for invalid text.

    >>> hash_ranges_of("0-9,20-29"), hash_ranges_of("")
    (((0, 9), (20, 29)), ())
    """
    if not text:
        return ()
    if text.count(",") >= DEFAULT_RANGE_SIZE:
        raise InvalidConfiguration(
            f"hash_ranges: {text.count(',') + 1} ranges are more than the {DEFAULT_RANGE_SIZE} hashes there are"
        )
    ranges = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None or any(abs(int(number)) > MOST_INT32 for number in found.groups()):
            raise InvalidConfiguration(
                f"hash_ranges: {shown(part)} is not two whole numbers with a hyphen between them, such as 0-65535"
            )
        ranges.append((int(found[1]), int(found[2])))
    return tuple(ranges)


def rules_for(first: KeySharedMeta, policy: Callable[[str], int]) -> KeySharedRules:
    """The rules that the *first* consumer's request fixes; *policy* gives a policy's value by name.

    >>> rules_for(KeySharedMeta("STICKY"), lambda name: 1).is_classic
    True
    """
    return KeySharedRules(first.mode, first.allows_out_of_order, *map(policy, RULES))


def kept_rules(mode: str, allows_out_of_order: bool | None, properties: Mapping[str, str]) -> KeySharedRules:
    """The rules in the subscription's row.

    >>> kept_rules("STICKY", None, rules_for(KeySharedMeta("STICKY"), lambda name: 1).properties()).is_classic
    True
    """
    return KeySharedRules(
        mode, bool(allows_out_of_order), *(policy_number(name, properties.get(name, "")) for name in RULES)
    )


def meta_refusal(rules: KeySharedRules, requested: KeySharedMeta) -> tuple[str, str] | None:
    """Why a consumer with this request may not join, as (error name, text); None if it may (2.4). The classic
    implementation accepts any, as 3.2.3.

    >>> meta_refusal(KeySharedRules("AUTO_SPLIT"), KeySharedMeta("STICKY"))[0]
    'SubscriptionBusy'
    """
    if rules.is_classic:
        return None
    if requested.mode != rules.mode:
        return (
            "SubscriptionBusy",
            f"consumers of key_shared mode {rules.mode} are connected: close them first, or subscribe with that "
            f"mode instead of {requested.mode}",
        )
    if requested.allows_out_of_order != rules.allows_out_of_order:
        return (
            "SubscriptionBusy",
            f"consumers {'with' if rules.allows_out_of_order else 'without'} allow_out_of_order_delivery are "
            "connected: close them first, or subscribe like them",
        )
    return None


def owners_with(selector: Selector | None, rules: KeySharedRules, newcomer: Member) -> Selector:
    """The selector once *newcomer* has joined (2.24-2.29); :class:`ConsumerAssignError` if it cannot get hashes.
    *selector* is None before the first consumer.

    >>> owners_with(None, KeySharedRules("STICKY"), Member("a", "a", ((0, 9),))).owned()
    [OwnedRange(start=0, end=9, consumer_id='a', sharers=1, share=0)]
    """
    return (selector or new_selector(rules)).joined(newcomer)


def owners_without(selector: Selector, consumer_id: str) -> Selector:
    """The selector once a consumer has left (2.25-2.29).

    >>> owners_without(AutoSplit(((32768, "b"), (65536, "a"))), "b").borders
    ((65536, 'a'),)
    """
    return selector.left(consumer_id)


def new_selector(rules: KeySharedRules) -> Selector:
    if rules.mode == STICKY:
        return Sticky(is_exact=not rules.is_classic)
    if not rules.use_consistent_hashing:
        return AutoSplit()
    ring = ConsistentHashing4 if rules.one_owner_per_point else ConsistentHashing
    return ring(points=rules.consistent_hashing_replica_points)


def join_position(
    rules: KeySharedRules, *, others: Collection, first_untouched: int, mark_delete_position: int
) -> int | None:
    """The position remembered for a recently joined consumer: the first after all delivered entries (2.32, 2.35, 0.35).
    None if it needs none.

    >>> rules = KeySharedRules(use_classic_persistent_implementation=1)
    >>> [join_position(rules, others=["a"], first_untouched=3, mark_delete_position=last) for last in (1, 2)]
    [3, None]
    """
    is_guarded = rules.is_classic and not rules.allows_out_of_order
    return first_untouched if is_guarded and others and first_untouched - mark_delete_position > 1 else None


def still_recent(recently_joined: Mapping[str, int], consumers: Collection[str]) -> dict[str, int]:
    """The recently joined among the connected *consumers*; none if at most one is connected (2.34).

    >>> still_recent({"b": 3, "c": 4}, ["a", "c"]), still_recent({"b": 3}, ["b"])
    ({'c': 4}, {})
    """
    if len(consumers) <= 1:
        return {}
    return {consumer_id: position for consumer_id, position in recently_joined.items() if consumer_id in consumers}
