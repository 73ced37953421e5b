"""Checks the arguments of ``send`` and makes a message of them."""

import time
from datetime import timedelta
from typing import Any

from pulsar_spark.client.arguments import check_properties, check_type, check_utf8
from pulsar_spark.client.sending.publish_rows import Outgoing
from pulsar_spark.client.sending.send_outcomes import Done
from pulsar_spark.errors import InvalidMessage
from pulsar_spark.protocol.delays.delays import MAX_MS
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.schema import Schema
from pulsar_spark.storage import clock


def outgoing(
    schema: Schema,
    timeout: float,
    done: Done | None,
    content: Any,
    properties: Any,
    partition_key: Any,
    ordering_key: Any,
    sequence_id: Any,
    replication_clusters: Any,
    disable_replication: Any,
    event_timestamp: Any,
    deliver_at: Any,
    deliver_after: Any,
) -> Outgoing:
    """The message, with sequence id -1 for the next one; ValueError, TypeError or :class:`InvalidMessage`."""
    payload = None if content is None else _encoded(schema, content)
    if properties is not None:
        check_properties(properties)
    if partition_key is not None:
        _check_text(partition_key, "partition_key")
    if ordering_key is not None:
        _check_text(ordering_key, "ordering_key")
    if sequence_id is not None:
        _check_number(sequence_id, "sequence_id", MAX_LONG)
    if replication_clusters is not None:
        check_type(list, replication_clusters, "replication_clusters")
    if disable_replication is not False:
        check_type(bool, disable_replication, "disable_replication")
    if event_timestamp is not None:
        _check_number(event_timestamp, "event_timestamp", MAX_MS)
    now_ms = clock.time_ns() // 1_000_000
    if deliver_at is not None or deliver_after is not None:
        deliver_at = deliver_at_ms(deliver_at, deliver_after, now_ms)
    return tuple.__new__(  # faster than the class's __new__
        Outgoing,
        (
            payload,
            partition_key or None,
            ordering_key or None,
            list(properties.items()) if properties else None,
            event_timestamp or None,
            deliver_at or None,
            now_ms,
            -1 if sequence_id is None else sequence_id,
            time.monotonic() + timeout,
            done,
            None,
        ),
    )


def _encoded(schema: Schema, content: object) -> bytes:
    payload = schema.encode(content)
    if type(payload) is not bytes:
        check_type(bytes, payload, "content")
    return payload


def deliver_at_ms(deliver_at: Any, deliver_after: Any, now_ms: int) -> int | None:
    """The deliver time in ms since 1970, also a past one (5.1, 5.2); :class:`InvalidMessage` if it exceeds 64 bits."""
    if deliver_at is not None:
        check_type(int, deliver_at, "deliver_at")
    if deliver_after is not None:
        check_type(timedelta, deliver_after, "deliver_after")
        deliver_at = now_ms + deliver_after // timedelta(milliseconds=1)
    if deliver_at is not None and abs(deliver_at) > MAX_MS:
        given = f"deliver_at {deliver_at!r}" if deliver_after is None else f"deliver_after {str(deliver_after)!r}"
        raise InvalidMessage(f"{given} exceeds 64 bits: give milliseconds since 1970, at most {MAX_MS}")
    return deliver_at


def _check_text(value: Any, name: str) -> None:
    check_type(str, value, name)
    check_utf8(value, name)


def _check_number(value: Any, name: str, highest: int) -> None:
    check_type(int, value, name)
    if not 0 <= value <= highest:
        raise ValueError(f"argument {name}: {value} is not between 0 and {highest}")
