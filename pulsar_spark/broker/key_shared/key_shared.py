"""The owners of hashes of Key_Shared subscriptions, as consumers join and leave, and after a restart (semantics 2.4,
2.24-2.35)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.requests.drafts import CursorChanges
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.errors import ConsumerAssignError
from pulsar_spark.protocol.keys.kept_owners import KEPT_PROPERTIES, kept_member, kept_selector
from pulsar_spark.protocol.keys.key_shared import (
    KeySharedMeta,
    KeySharedRules,
    join_position,
    kept_rules,
    key_shared_meta,
    meta_refusal,
    owners_with,
    owners_without,
    rules_for,
    still_recent,
)
from pulsar_spark.protocol.keys.selectors import Member


class Newcomer(NamedTuple):
    """A consumer that asks to join Key_Shared, and the rules if it is first."""

    member: Member
    meta: KeySharedMeta
    rules: KeySharedRules


def newcomer_of(request: Request, policy: Callable[[str], int]) -> Newcomer:
    """The newcomer of a subscribe request; InvalidConfiguration for unknown settings."""
    meta = key_shared_meta(request.properties)
    consumer_id = request.consumer_id or ""
    member = Member(consumer_id, request.properties.get("consumer_name") or consumer_id, meta.ranges)
    return Newcomer(member, meta, rules_for(meta, policy))


def refusal_of(newcomer: Newcomer, cursor: Cursor | None) -> tuple[str, str] | None:
    """Why it may not join: (error name, text); None if it may."""
    rules, selector = (cursor.key_shared, cursor.selector) if cursor else (None, None)
    rules = rules or newcomer.rules
    if selector and (refused := meta_refusal(rules, newcomer.meta)):
        return refused
    try:
        owners_with(selector, rules, newcomer.member)
    except ConsumerAssignError as refused:
        return "ConsumerAssignError", str(refused)
    return None


def assign_hashes(cursor: Cursor, newcomer: Newcomer, changes: CursorChanges) -> None:
    """Give a consumer its hashes, and note its join position."""
    consumer_id = newcomer.member.consumer_id
    cursor.key_shared = cursor.key_shared or newcomer.rules
    _before_change(changes)
    cursor.selector = owners_with(cursor.selector, cursor.key_shared, newcomer.member)
    position = join_position(
        cursor.key_shared,
        others=cursor.consumers.keys() - {consumer_id},
        first_untouched=cursor.first_untouched,
        mark_delete_position=cursor.mark_delete,
    )
    if position is not None:
        cursor.recently_joined[consumer_id] = position


def release_hashes(cursor: Cursor, consumer_id: str, changes: CursorChanges) -> None:
    if cursor.selector is None:
        return
    _before_change(changes)
    recent = still_recent(cursor.recently_joined, cursor.consumers)
    changes.changed_consumers |= (cursor.recently_joined.keys() - recent.keys()) & cursor.consumers.keys()
    cursor.recently_joined = recent
    cursor.selector = owners_without(cursor.selector, consumer_id) if cursor.consumers else None
    if not cursor.consumers:
        cursor.key_shared = None


def _before_change(changes: CursorChanges) -> None:
    if changes.hash_ranges_before is None:
        changes.hash_ranges_before = changes.cursor.hash_ranges


def with_other_hash_ranges(changes: CursorChanges) -> set[str]:
    if changes.hash_ranges_before is None:
        return set()
    after = changes.cursor.hash_ranges
    return {each for each in changes.cursor.consumers if after.get(each) != changes.hash_ranges_before.get(each)}


def restore(cursor: Cursor, row: Mapping, of_consumers: Mapping[str, Mapping]) -> None:
    """Restore the owners from the rows of a cursor and of its consumers, which are loaded already."""
    if not cursor.is_key_shared or not cursor.consumers:
        return
    cursor.key_shared = kept_rules(
        row["key_shared_mode"], row["allow_out_of_order_delivery"], dict(row["properties"] or [])
    )
    for consumer_id, consumer in cursor.consumers.items():
        for name in KEPT_PROPERTIES:
            consumer.properties.pop(name, None)
        joined_at = of_consumers[consumer_id]["read_position"]
        if joined_at is not None:
            cursor.recently_joined[consumer_id] = joined_at
    kept = [kept_member(of_consumers[consumer_id]) for consumer_id in cursor.consumers]
    cursor.selector = kept_selector(cursor.key_shared, kept)
