"""Key_Shared subscriptions for people: who owns which hashes, and which hashes wait for whom, as stats and as rows of
the views ``hash_ranges`` and ``draining_hashes``.

Names are Pulsar's: ``keyHashRanges`` (texts, until 3.x), ``keyHashRangeArrays``, and ``draining...`` (from 4.0).
``waitingHashes`` is ours: the consumer gave back an entry that is not due."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cached_property

from pulsar_spark.errors import TopicNotFound
from pulsar_spark.protocol.keys.hash_ranges import Owners
from pulsar_spark.protocol.keys.kept_owners import kept_member, kept_selector
from pulsar_spark.protocol.keys.key_shared import KeySharedRules, kept_rules
from pulsar_spark.protocol.keys.selectors import Selector
from pulsar_spark.protocol.subscriptions.membership import KEY_SHARED
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.views.draining import DrainingHash, draining_hashes

_COUNTS = ("drainingHashesCount", "drainingHashesUnackedMessages", "waitingHashesCount")
_RANGES = ("keyHashRanges", "keyHashRangeArrays")
_LISTS = ("drainingHashes", "waitingHashes")


class KeyShared:
    """A Key_Shared cursor in the latest rows: its rules, its *consumers* in order of joining, what each owns by the
    *selector*, and the hashes that wait. *table* is the topic's."""

    def __init__(
        self,
        layout: Layout,
        table: AnyPath,
        latest: LatestRows,
        key: CursorKey,
        rules: KeySharedRules,
        consumers: list[dict],
        selector: Selector,
    ):
        self._layout, self._table, self._latest, self._key = layout, table, latest, key
        self.rules, self.consumers = rules, consumers
        self.names = {row["consumer_id"]: row["consumer_name"] for row in consumers}
        self.owned, self.axis = selector.owned(), selector.axis

    @cached_property
    def waiting(self) -> list[DrainingHash]:
        """The hashes that wait; none if order is not guarded, or by the rule of recently joined consumers."""
        if self.rules.allows_out_of_order or self.rules.is_classic:
            return []
        owners, changed = Owners(self.owned, self.axis), self._latest.cursors[self._key]["round_time"]
        return draining_hashes(self._layout, self._table, self._latest, self._key, owners, changed)


def read_key_shared(layout: Layout, table: AnyPath, latest: LatestRows, key: CursorKey) -> KeyShared | None:
    """The Key_Shared cursor; None for another type or without consumers."""
    cursor = latest.cursors[key]
    if cursor["subscription_type"] != KEY_SHARED:
        return None
    consumers = sorted(latest.consumers[key].values(), key=lambda row: row["join_order"] or 0)
    properties = dict(cursor["properties"] or [])
    rules = kept_rules(cursor["key_shared_mode"], cursor["allow_out_of_order_delivery"], properties)
    selector = kept_selector(rules, [kept_member(row) for row in consumers])
    return None if selector is None else KeyShared(layout, table, latest, key, rules, consumers, selector)


def subscription_stats(found: KeyShared) -> dict:
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
    owned = [[one.start, one.end] for one in found.owned if one.consumer_id == consumer_id]
    of_consumer = [one for one in found.waiting if one.consumer_id == consumer_id]
    return {
        "keyHashRanges": [f"[{start}, {end}]" for start, end in owned],
        "keyHashRangeArrays": owned,
        **_counts(of_consumer),
        "drainingHashes": [{"hash": one.hash, "unackMsgs": one.messages} for one in of_consumer if one.is_draining],
        "waitingHashes": [{"hash": one.hash, "unackMsgs": one.messages} for one in of_consumer if not one.is_draining],
    }


def _counts(waiting: list[DrainingHash]) -> dict:
    draining = [one.messages for one in waiting if one.is_draining]
    return dict(zip(_COUNTS, (len(draining), sum(draining), len(waiting) - len(draining)), strict=True))


def range_rows(found: KeyShared) -> Iterator[dict]:
    """The columns of ``view_specs.HASH_OWNERS`` after the place, one row per range in order; unowned ranges
    included."""
    at, nobody = found.axis.start, {"consumer_name": None, "consumer_id": None, "sharers": 1, "share": 0}

    def row(start: int, end: int, owner: dict) -> dict:
        axis = {"axis_size": found.axis.size, "axis_start": found.axis.start}
        return {"range_start": start, "range_end": end} | axis | owner

    for one in found.owned:
        if one.start > at:
            yield row(at, one.start - 1, nobody)
        owner = {"consumer_name": found.names.get(one.consumer_id), "consumer_id": one.consumer_id}
        yield row(one.start, one.end, owner | {"sharers": one.sharers, "share": one.share})
        at = max(at, one.end + 1)
    if at <= found.axis.last:
        yield row(at, found.axis.last, nobody)


def draining_rows(found: KeyShared) -> Iterator[dict]:
    """The columns of ``view_specs.DRAINING_HASHES`` after the place, one row per hash and consumer, by hash."""
    for one in found.waiting:
        yield {
            "sticky_key_hash": one.hash,
            "owner_name": found.names.get(one.owner_id),
            "owner_id": one.owner_id,
            "consumer_name": found.names.get(one.consumer_id),
            "consumer_id": one.consumer_id,
            "is_draining": one.is_draining,
            "first": one.first,
            "entries": one.entries,
            "messages": one.messages,
            "due_time": None if one.due_time is None else datetime.fromtimestamp(one.due_time / 1_000_000, UTC),
        }


def rows_of_cursors(
    layout: Layout, latest: LatestRows, keys: Iterable[CursorKey], rows_of: Callable[[KeyShared], Iterable[dict]]
) -> Iterator[dict]:
    """The rows of *rows_of* for each Key_Shared cursor with consumers, with its place."""
    for key in keys:
        if key not in latest.cursors:
            continue
        name = latest.cursors[key]["topic"]
        with contextlib.suppress(TopicNotFound):  # deleted, and no broker has noticed yet
            topic = read_topic(layout, name)
            found = read_key_shared(layout, topic.path, latest, key) if topic.topic_id == key.topic_id else None
            place = {"topic": name, "partition": key.partition, "subscription": key.subscription}
            yield from (place | row for row in (rows_of(found) if found else ()))


def add_key_shared(total: dict, part: dict) -> None:
    """Add another partition's stats: counts and hash lists are summed, ranges kept only if equal."""
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
