"""Leaves duplicates out of one producer's commits, if the topic is deduplicated (protocol.policies.deduplication).

The topic's log gives the highest sequence ids, again if another process commits under the producer's name.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from pulsar_spark.client.sending.publish_rows import Entry, Outgoing
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.protocol.policies.deduplication import (
    Sent,
    app_id,
    are_new,
    are_rising,
    begun_after,
    encoded_name,
    prefix_since,
)
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.topics.sequence_ids import SequenceIds
from pulsar_spark.storage.topics.topics import Topic


class Judged(NamedTuple):
    """The entries to store, with *transactions*, by table version *known*. ``are_new`` flags each message, None if all
    are; ``begun`` are incomplete chunked messages by partition."""

    known: int
    entries: list[Entry]
    transactions: dict[str, int]
    are_new: list[bool] | None
    begun: dict[int, set[int]]


class _Active(NamedTuple):
    """The round since which deduplication is on, and the producer's sequence ids in the topic's log."""

    since: int
    ids: SequenceIds

    def highest(self, partition: int, producer_name: str) -> tuple[str, int | None]:
        """The transaction of a producer on a partition, and its highest sequence id."""
        name = app_id(self.since, partition, producer_name)
        return name, self.ids.highest.get(name)


class Deduplication:
    """For one producer, and one thread at a time."""

    def __init__(self, topic: Topic, producer_name: str, quota: BacklogQuota, *, is_interleaved: bool = False):
        self._topic, self._producer_name, self._quota = topic, producer_name, quota
        self._is_interleaved = is_interleaved
        self._active: _Active | None = None
        self._begun: dict[int, set[int]] = {}

    def highest(self, partitions: list[int]) -> int | None:
        """The highest stored sequence id of the producer's name on *partitions*; None without one."""
        self._quota.look()
        active = self._look()
        if active is None:
            return None
        found = (active.highest(partition, self._producer_name)[1] for partition in partitions)
        return max((each for each in found if each is not None), default=None)

    def judge(self, entries: list[Entry]) -> Judged | None:
        """The part of *entries* to store; None without deduplication."""
        active = self._look()
        if active is None:
            return None
        by_partition: dict[int, list[Outgoing]] = {}
        for entry in entries:
            by_partition.setdefault(entry.partition, []).extend(entry.messages)
        transactions: dict[str, int] = {}
        begun: dict[int, set[int]] = {}
        judged: dict[int, Iterator[bool]] = {}
        for partition, messages in by_partition.items():
            before = self._begun.get(partition, set())
            name, highest = active.highest(partition, self._producer_name)
            if not before and are_rising([each.sequence_id for each in messages], highest) and not _chunks(messages):
                transactions[name] = messages[-1].sequence_id
                judged[partition] = repeat(True)
                continue
            sent = list(map(_sent, messages))
            found = are_new(sent, highest, before, is_interleaved=self._is_interleaved)
            stored = [each for each, is_new in zip(sent, found, strict=True) if is_new]
            ended = [each.sequence_id for each in stored if each.ends]
            if ended:
                transactions[name] = max(ended) if highest is None else max(highest, *ended)
            begun[partition], judged[partition] = begun_after(stored, before), iter(found)
        if not begun:
            return Judged(active.ids.version, entries, transactions, None, begun)
        flags: list[bool] = []
        left: list[Entry] = []
        for entry in entries:
            of_entry = [next(judged[entry.partition]) for _ in entry.messages]
            flags += of_entry
            if all(of_entry):
                left.append(entry)
            elif any(of_entry):
                kept = [message for message, is_new in zip(entry.messages, of_entry, strict=True) if is_new]
                left.append(entry._replace(messages=kept))
        return Judged(active.ids.version, left, transactions, flags, begun)

    def stored(self, judged: Judged, version: int) -> None:
        if self._active is not None:
            self._active.ids.committed(version, judged.transactions)
        self._begun |= judged.begun

    def must_share(self, taken: list[Entry], entry: Entry) -> bool:
        """Whether *entry* must share the commit of those *taken*, lest interleaved key-based batches count as
        duplicates."""
        if not self._is_interleaved or self._quota.deduplication_since() is None:
            return False
        lowest = min(message.sequence_id for message in entry.messages)
        return any(message.sequence_id > lowest for each in taken for message in each.messages)

    def _look(self) -> _Active | None:
        since = self._quota.deduplication_since()
        if self._active is not None and self._active.since != since:
            self._active, self._begun = None, {}
        if since is None:
            return None
        if self._active is None:
            begins, ends = prefix_since(since), f"/{encoded_name(self._producer_name)}"
            ids = SequenceIds(
                self._topic.path,
                lambda name: name.startswith(begins) and name.endswith(ends),
                self._quota.inactivity_ms(),
            )
            self._active = _Active(since, ids)
        self._active.ids.catch_up()
        return self._active


def ids_of(
    entries: list[Entry], are_new: list[bool] | None, stored: Iterator[MessageId]
) -> Iterator[tuple[Outgoing, MessageId]]:
    """Each message with its id: the next of *stored*, or for a duplicate one that names no entry."""
    flags = repeat(True) if are_new is None else iter(are_new)
    for entry in entries:
        for message in entry.messages:
            yield message, next(stored) if next(flags) else MessageId(entry.partition)


def _chunks(messages: list[Outgoing]) -> bool:
    return any(message.columns and "chunk_id" in message.columns for message in messages)


def _sent(message: Outgoing) -> Sent:
    columns = message.columns
    if not columns or "chunk_id" not in columns:
        return Sent(message.sequence_id)
    chunk_id, chunks = columns["chunk_id"], columns["num_chunks_from_msg"]
    return Sent(message.sequence_id, chunk_id == 0, isinstance(chunks, int) and chunk_id == chunks - 1)
