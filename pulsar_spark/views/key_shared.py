"""Key_Shared subscriptions as people look at them: who owns which hashes, which of them wait and for whom; as stats,
and as rows of the views ``hash_ranges`` and ``draining_hashes``.

Names are Pulsar's: ``keyHashRanges`` (as strings, until 3.x), ``keyHashRangeArrays`` and what begins with ``draining``
(from 4.0 on), which a consumer's stats have of the hashes that drain from it. ``hash`` is a whole hash of 31 bits, as
``messages.sticky_key_hash`` has it. Ours is ``waitingHashes``: those of which the consumer gave back an entry that is
not due again. Left out is what rows do not tell: ``drainingHashesClearedTotal`` and ``blockedAttempts``.
"""

from typing import NamedTuple

from pulsar_spark.protocol.hash_ranges import Axis, OwnedRange, Owners
from pulsar_spark.protocol.kept_owners import KeptMember, kept_selector
from pulsar_spark.protocol.key_shared import KeySharedRules, kept_rules, key_shared_meta
from pulsar_spark.protocol.membership import KEY_SHARED
from pulsar_spark.protocol.selectors import Member
from pulsar_spark.storage.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.layout import Layout
from pulsar_spark.views.draining import DrainingHash, draining_hashes

_COUNTS = ("drainingHashesCount", "drainingHashesUnackedMessages", "waitingHashesCount")
_RANGES = ("keyHashRanges", "keyHashRangeArrays")
_LISTS = ("drainingHashes", "waitingHashes")


class KeyShared(NamedTuple):
    """A Key_Shared cursor with consumers: its rules, who owns what, the row of each consumer in order of joining, and
    the hashes that wait."""

    rules: KeySharedRules
    axis: Axis
    owned: list[OwnedRange]
    consumers: list[dict]
    waiting: list[DrainingHash]

    def name_of(self, consumer_id: str | None) -> str | None:
        """The name of a consumer that is connected."""
        return next((row["consumer_name"] for row in self.consumers if row["consumer_id"] == consumer_id), None)

    def share_of(self, consumer_id: str) -> float:
        """Which part of all hashes a consumer owns, 0 to 1."""
        own = (one for one in self.owned if one.consumer_id == consumer_id)
        places = sum((min(one.end, self.axis.last) - one.start + 1) / one.sharers for one in own)
        return places / self.axis.size


def read_key_shared(layout: Layout, latest: LatestRows, key: CursorKey, table) -> KeyShared | None:
    """The cursor as the latest rows have it; None for one of another type, or without consumers. *table* is the
    topic's, of which only what may wait is read."""
    cursor = latest.cursors[key]
    consumers = sorted(latest.consumers[key].values(), key=lambda row: row["join_order"] or 0)
    if cursor["subscription_type"] != KEY_SHARED or not consumers:
        return None
    rules = kept_rules(
        cursor["key_shared_mode"], cursor["allow_out_of_order_delivery"], dict(cursor["properties"] or [])
    )
    selector = kept_selector(rules, [_kept(row) for row in consumers])
    found = KeyShared(rules, selector.axis, selector.owned(), consumers, [])
    if rules.allows_out_of_order or rules.is_classic:
        return found
    ranges = (held for page in latest.pages[key].values() for held in page)
    owners = Owners(found.owned, found.axis)
    return found._replace(waiting=draining_hashes(layout, table, key, ranges, owners, cursor["round_time"]))


def _kept(consumer: dict) -> KeptMember:
    properties = dict(consumer["properties"] or [])
    member = Member(consumer["consumer_id"], consumer["consumer_name"], key_shared_meta(properties).ranges)
    return KeptMember(member, tuple((held["start"], held["end"]) for held in consumer["hash_ranges"] or ()), properties)


def subscription_stats(found: KeyShared) -> dict:
    """What the stats of a Key_Shared subscription have besides those of every other."""
    stats = {
        "keySharedMode": found.rules.mode,
        "allowOutOfOrderDelivery": found.rules.allows_out_of_order,
        **_counts(found.waiting),
    }
    if found.rules.is_classic:
        joined = [row for row in found.consumers if row["read_position"] is not None]
        stats["consumersAfterMarkDeletePosition"] = {row["consumer_name"]: row["read_position"] for row in joined}
    return stats


def consumer_stats(found: KeyShared, consumer_id: str) -> dict:
    """The same of one consumer: the hashes it owns, and those that wait for it."""
    owned = [[one.start, one.end] for one in found.owned if one.consumer_id == consumer_id]
    held = [one for one in found.waiting if one.consumer_id == consumer_id]
    return {
        "keyHashRanges": [f"[{start}, {end}]" for start, end in owned],
        "keyHashRangeArrays": owned,
        **_counts(held),
        "drainingHashes": [{"hash": one.hash, "unackMsgs": one.messages} for one in held if one.is_draining],
        "waitingHashes": [{"hash": one.hash, "unackMsgs": one.messages} for one in held if not one.is_draining],
    }


def _counts(waiting: list[DrainingHash]) -> dict:
    draining = [one.messages for one in waiting if one.is_draining]
    return dict(zip(_COUNTS, (len(draining), sum(draining), len(waiting) - len(draining)), strict=True))


def add_key_shared(total: dict, part: dict) -> None:
    """Add the stats of another partition, of a subscription or a consumer: counts and hashes are summed; ranges are
    said where they are the same on every partition."""
    if "keySharedMode" in part:
        total.setdefault("keySharedMode", part["keySharedMode"])
        total["allowOutOfOrderDelivery"] = (
            total.get("allowOutOfOrderDelivery", False) or part["allowOutOfOrderDelivery"]
        )
    for name in _COUNTS:
        if name in part:
            total[name] = total.get(name, 0) + part[name]
    for name in _LISTS:
        if name in part:
            total[name] = total.get(name, []) + part[name]
    for name in _RANGES:
        if total.get(name) != part.get(name):
            total.pop(name, None)
