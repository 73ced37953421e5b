"""Compaction: the latest message of each key stays; none stays if that one is empty.

Rules: AbstractTwoPhaseCompactor, PublishingOrderCompactor, RawBatchConverter.rebatchMessage, for each partition.
Messages without a key stay only if ``topic_compaction_retain_null_key`` is set (``topicCompactionRetainNullKey``).

Ours: a chunked message is one message, at its last chunk. An empty payload is a tombstone; Pulsar keeps tombstones of
clients that do not state ``uncompressed_size`` (conformance scenario ``compaction``)."""

from collections.abc import Iterable
from typing import NamedTuple

from pulsar_spark.protocol.subscriptions.membership import SINGLE_ACTIVE

NOT_RUN, RUNNING, SUCCESS, ERROR = "NOT_RUN", "RUNNING", "SUCCESS", "ERROR"
"""The states of a topic's last compaction (LongRunningProcessStatus)."""

IS_READ_COMPACTED = "is_read_compacted"
"""Property of a subscribe request: "true" if the consumer reads the compacted view."""

TAG_BYTES = 16
"""Bytes that encryption adds to a payload (payloads.encryption)."""


class Keyed(NamedTuple):
    """What compaction needs of a message: its place, its key (or None) and its payload's bytes."""

    position: int
    batch_index: int
    key: str | None
    size: int


def payload_size(stored: int | None, *, uncompressed: int | None = None, is_encrypted: bool = False) -> int:
    """The bytes of a payload as it was sent, of which *stored* bytes are stored; 0 for a null value.

    >>> payload_size(None), payload_size(5), payload_size(16, is_encrypted=True), payload_size(9, uncompressed=0)
    (0, 5, 0, 0)
    """
    if uncompressed is not None:
        return uncompressed
    return max(0, (stored or 0) - (TAG_BYTES if is_encrypted else 0))


def survivors(messages: Iterable[Keyed], *, retain_null_key: bool = False) -> list[tuple[int, int]]:
    """(position, batch index) of the *messages* of a partition that stay, in order.

    >>> sent = [("a", 1), ("b", 1), (None, 1), ("a", 2), ("b", 0)]
    >>> survivors([Keyed(position, 0, *each) for position, each in enumerate(sent)])
    [(3, 0)]
    """
    latest: dict[str, Keyed] = {}
    keyless = []
    for message in messages:
        if message.key is None:
            keyless.append(message)
        elif message.key not in latest or message[:2] > latest[message.key][:2]:
            latest[message.key] = message
    stay = [message for message in latest.values() if message.size > 0]
    return sorted(message[:2] for message in (stay + keyless if retain_null_key else stay))


def reads_compacted_refusal(subscription_type: str) -> tuple[str, str] | None:
    """Why a subscription of this type cannot read compacted (ServerCnx.handleSubscribe), as (error name, text); None if
    it can.

    >>> reads_compacted_refusal("Shared")[0], reads_compacted_refusal("Failover")
    ('InvalidConfiguration', None)
    """
    if subscription_type in SINGLE_ACTIVE:
        return None
    return "InvalidConfiguration", "is_read_compacted works on Exclusive and Failover subscriptions only"


def is_wanted(threshold: int, uncompacted_bytes: int) -> bool:
    """Whether to compact a topic with *uncompacted_bytes* automatically (PersistentTopic.checkCompaction); never at a
    *threshold* of 0.

    >>> is_wanted(100, 100), is_wanted(100, 101), is_wanted(0, 101)
    (False, True, False)
    """
    return 0 < threshold < uncompacted_bytes
