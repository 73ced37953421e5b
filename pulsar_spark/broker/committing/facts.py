"""The rows of a round: one function per kind of row of ``cursor_ledger``. Missing columns are null; round_rows adds
``round``."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.acknowledgement.packing import packed_stretches
from pulsar_spark.protocol.policies.compaction import IS_READ_COMPACTED
from pulsar_spark.protocol.redelivery.letters import DEAD_LETTER, RETRY_LETTER, ReconsumeLater
from pulsar_spark.protocol.subscriptions.unacked_limit import BLOCKED_BY_BROKER
from pulsar_spark.protocol.topics.bundles import WHOLE, BundleRange
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CURSOR_COUNTERS, CursorKey, WaitingKey
from pulsar_spark.storage.cursor_ledger.set_aside import SetAside

if TYPE_CHECKING:
    from pulsar_spark.broker.bundle.topic_state import TopicState
    from pulsar_spark.broker.requests.request import Request

_TEXT = 2000


BUNDLE_RANGE = "bundle_range"
"""Property of a round's row that names the slice of topics its bundle serves."""


def round_row(
    *,
    wall: int,
    now: int,
    requests_version: int,
    epoch: int,
    broker_id: str,
    is_snapshot: bool,
    served: BundleRange = WHOLE,
    counts: Mapping[str, int] | None = None,
) -> dict:
    """One row per round: its time by both clocks, what it consumed, its slice unless that is the whole, and *counts* of
    what it did."""
    return dict(
        kind="round",
        round_time=wall,
        due_time=now,
        requests_version=requests_version,
        epoch=epoch,
        broker_id=broker_id,
        is_snapshot=is_snapshot,
        properties=None if served.is_whole else [(BUNDLE_RANGE, str(served))],
        counts=None if counts is None else list(counts.items()),
    )


def topic_rows(state: "TopicState", dues_dropped: Mapping[tuple[str, int], int]) -> list[dict]:
    """One row per partition of a topic: how far it is numbered and trimmed, and until when *dues_dropped* says due
    entries left the delay index."""
    return [
        dict(
            kind="topic",
            topic=str(state.topic.name),
            topic_id=state.topic.topic_id,
            partition=partition,
            ledger_id=state.version,
            end_position=state.end_position(partition),
            first=state.first_position(partition),
            due_since=dues_dropped.get((state.topic.topic_id, partition)),
        )
        for partition in state.topic.partition_indexes
    ]


def removed_topic_row(state: "TopicState") -> dict:
    """One row per deleted topic; it ends all its partitions and cursors."""
    return dict(kind="topic", topic=str(state.topic.name), topic_id=state.topic.topic_id, is_removed=True)


def cursor_row(cursor: Cursor) -> dict:
    """One row per cursor, without its ranges and consumers."""
    rules = cursor.key_shared.properties() if cursor.key_shared else {}
    view = [(IS_READ_COMPACTED, "true")] * cursor.reads_compacted
    return dict(
        _of(cursor, "cursor"),
        due_since=cursor.dues and cursor.dues.watermark,
        mark_delete_position=cursor.mark_delete,
        chunks=packed_stretches(cursor.chunked.released if cursor.chunked else None),
        read_position=cursor.read_position,
        subscription_type=cursor.subscription_type,
        is_blocked=cursor.is_blocked,
        status=BLOCKED_BY_BROKER if cursor.is_blocked_by_broker else None,
        properties=[*cursor.dead_letters.items(), *rules.items(), *view],
        key_shared_mode=cursor.key_shared_mode,
        allow_out_of_order_delivery=cursor.allows_out_of_order or None,
        join_order=cursor.joined,
        due_time=cursor.reads_after or None,
        round_time=cursor.last_active,
        **{name: getattr(cursor, name) for name in CURSOR_COUNTERS},
    )


def removed_cursor_row(cursor: Cursor) -> dict:
    """One row per deleted cursor; it ends its ranges and consumers."""
    return dict(_of(cursor, "cursor"), is_removed=True)


def consumer_row(cursor: Cursor, consumer: Consumer, *, lease_time: int | None, with_hash_ranges: bool) -> dict:
    """One row per connected consumer. *with_hash_ranges* adds its hash ranges; else those of its previous row stay."""
    return dict(
        _of(cursor, "consumer"),
        consumer_id=consumer.consumer_id,
        consumer_name=consumer.name,
        client_id=consumer.client_id,
        priority_level=consumer.priority_level,
        permits=consumer.permits,
        is_blocked=consumer.is_blocked,
        is_active=consumer.consumer_id == cursor.active_id if cursor.is_single_active else None,
        lease_time=lease_time,
        join_order=consumer.join_order,
        msg_out_counter=consumer.msg_out_counter,
        msg_redeliver_counter=consumer.msg_redeliver_counter,
        properties=list((consumer.properties | cursor.kept_properties.get(consumer.consumer_id, {})).items()),
        hash_ranges=[{"start": start, "end": end} for start, end in cursor.hash_ranges.get(consumer.consumer_id, ())]
        if with_hash_ranges and cursor.selector
        else None,
        read_position=cursor.recently_joined.get(consumer.consumer_id),
        chunks=packed_stretches(cursor.chunked.kept_back.get(consumer.consumer_id) if cursor.chunked else None),
    )


def removed_consumer_row(cursor: Cursor, consumer: Consumer, why: str) -> dict:
    """One row per consumer that left, and why."""
    return dict(
        _of(cursor, "consumer"),
        consumer_id=consumer.consumer_id,
        consumer_name=consumer.name,
        client_id=consumer.client_id,
        is_removed=True,
        text=why,
    )


def reset_row(cursor: Cursor) -> dict:
    """One row per cursor whose ranges are written anew: those of earlier rounds end."""
    return _of(cursor, "reset")


def policy_row(owner: str, topic_id: str | None, name: str, value: str | None) -> dict:
    """One row per policy of a topic or namespace; None removes it."""
    return dict(kind="policy", topic=owner, topic_id=topic_id, properties=[(name, value)], is_removed=value is None)


def dead_letter_rows(cursor: Cursor, dead: Iterable[Range]) -> list[dict]:
    """One row per range of dead entries, for their dead letters."""
    same = dict(_of(cursor, "letter"), status=DEAD_LETTER, properties=list(cursor.dead_letters.items()))
    return [
        dict(
            same,
            first=range_.first,
            last=range_.last,
            consumer_id=range_.consumer_id,
            redelivery_count=range_.redelivery_count,
            ack_set=range_.ack_set,
            batch_size=range_.batch_size,
        )
        for range_ in dead
    ]


def put_off_letter_row(
    cursor: Cursor,
    request: "Request",
    reconsume_later: ReconsumeLater,
    *,
    redelivery_count: int,
    batch_size: int,
    ack_set: list[int] | None,
) -> dict:
    """One row per message put off, for its retry letter or dead letter."""
    return dict(
        _of(cursor, "letter"),
        status=DEAD_LETTER if reconsume_later.is_dead else RETRY_LETTER,
        first=request.last,
        last=request.last,
        consumer_id=request.consumer_id,
        redelivery_count=redelivery_count,
        batch_size=batch_size,
        ack_set=ack_set,
        request_id=request.request_id,
        properties=list(reconsume_later.request_properties().items()),
    )


def waiting_letter_row(key: WaitingKey, of_letter: dict, **columns: object) -> dict:
    """One row per letter row, or part, that waits, with the columns *of_letter*, and *columns* about the waiting."""
    return dict(of_letter, kind="waiting_letter", delivery_round=key.round, join_order=key.number, **columns)


def letterless_row(key: CursorKey, topic: str, messages: int) -> dict:
    """One row per cursor: messages deleted before their letter was written."""
    return dict(kind="letterless", topic=topic, **key._asdict(), msg_out_counter=messages)


def reply_row(request: "Request", topic_id: str | None, *, error: str | None, text: str | None) -> dict:
    """One row per answered request: done, or an error's name and text."""
    return dict(
        kind="reply",
        request_id=request.request_id,
        consumer_id=request.consumer_id,
        topic=request.topic,
        topic_id=topic_id,
        partition=request.partition,
        subscription=request.subscription,
        error=error,
        text=text,
    )


def reset_reply_row(cursor: Cursor, consumer: Consumer) -> dict:
    """One row per consumer whose cursor was moved: a reply without a request."""
    return dict(_of(cursor, "reply"), consumer_id=consumer.consumer_id, text="reset")


def set_aside_row(entry: SetAside, *, is_removed: bool | None = None) -> dict:
    """One row per request, topic or subscription set aside; *is_removed* ends it."""
    return dict(entry._asdict(), kind="set_aside", text=entry.text[:_TEXT], is_removed=is_removed)


def waiting_request_row(version: int, row: int, *, is_removed: bool | None = None) -> dict:
    """One row per request that waits for a later round."""
    return dict(kind="waiting_request", requests_version=version, first=row, is_removed=is_removed)


def housekeeping_row(table: str, what: str, count: int, wall: int) -> dict:
    """One row per table and kind of housekeeping: how many files or commits, and when."""
    return dict(kind="housekeeping", topic=table, status=what, entries=count, round_time=wall)


def _of(cursor: Cursor, kind: str) -> dict:
    return dict(kind=kind, topic=cursor.topic, **cursor.key._asdict())
