"""What requests have in common: they find the topic, cursor and consumer that they name, and create or move cursors."""

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.committing.facts import set_aside_row
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.requests.drafts import RoundDraft
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.errors import ConsumerNotFound, InvalidMessage, NotAllowedError, TopicNotFound, shown
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.cursor import initial_read_position
from pulsar_spark.protocol.suggestions import no_subscription
from pulsar_spark.protocol.topics.topic_name import check_subscription
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.cursor_ledger.set_aside import SetAside


class RequestHandler:
    """Looks things up in a bundle; notes changes in a draft."""

    def __init__(self, bundle: Bundle, draft: RoundDraft):
        self.bundle, self.draft = bundle, draft

    def topic_of(self, request: Request) -> TopicState:
        if not request.topic or request.partition is None:
            raise TopicNotFound(f"request {request.kind!r} has no topic and partition")
        state = self.bundle.topic(request.topic)
        self._check_served(self.bundle.set_aside.topic(request.topic, state.topic.topic_id), request)
        if not state.has_partition(request.partition):
            raise TopicNotFound(f"topic {request.topic!r} has no partition {request.partition}")
        return state

    def key_of(self, request: Request) -> CursorKey | None:
        topic, partition, subscription = request.topic, request.partition, request.subscription
        if not topic or topic not in self.bundle.topics or partition is None or subscription is None:
            return None
        return CursorKey(self.bundle.topics[topic].topic.topic_id, partition, subscription)

    def find_cursor(self, request: Request) -> Cursor | None:
        key = self.key_of(request)
        return None if key is None else self.bundle.cursors.get(key)

    def cursor_of(self, request: Request) -> Cursor:
        state = self.topic_of(request)
        cursor = self.find_cursor(request)
        if cursor is None:
            there = state.topic.topic_id, request.partition
            known = {key.subscription for key in self.bundle.cursors if key[:2] == there}
            raise no_subscription(str(state.topic.name), str(request.subscription), known)
        self._check_served(self.bundle.set_aside.cursor(cursor), request)
        return cursor

    def _check_served(self, entry: SetAside | None, request: Request) -> None:
        if entry is not None and request.kind not in ("unsubscribe", "close"):
            raise NotAllowedError(
                f"{entry.status} {shown(entry.subscription or entry.topic)} is set aside ({entry.error}: "
                f"{entry.text[:200]}): correct the cause, then run 'pulsar-spark set-aside retry {entry.id}'"
            )

    def forget(self, entry: SetAside) -> None:
        self.bundle.set_aside.pop(entry.id, None)
        self.draft.facts.append(set_aside_row(entry, is_removed=True))

    def consumer_of(self, request: Request, cursor: Cursor | None = None) -> Consumer:
        """The consumer of a request; *cursor* is its cursor, if known."""
        consumer = (cursor or self.cursor_of(request)).consumers.get(request.consumer_id or "")
        if consumer is None:
            raise ConsumerNotFound(
                f"consumer {request.consumer_id!r} is not connected to subscription {request.subscription!r}: "
                "subscribe again"
            )
        return consumer

    def consumer_name_of(self, request: Request) -> str | None:
        cursor = self.find_cursor(request)
        consumer = cursor.consumers.get(request.consumer_id or "") if cursor else None
        return consumer.name if consumer else request.properties.get("consumer_name") or request.consumer_id

    def check_range(self, cursor: Cursor, first: int | None, last: int | None) -> tuple[int, int]:
        """Refuse positions that the partition does not have."""
        end = self.bundle.topics[cursor.topic].end_position(cursor.key.partition)
        if first is None or last is None or not 0 <= first <= last < end:
            raise InvalidMessage(
                f"positions {first} to {last}: {cursor.topic!r} partition {cursor.key.partition} has entries 0 to "
                f"{end - 1}"
            )
        return first, last

    def check_ack_set(self, cursor: Cursor, position: int, ack_set: list[int]) -> None:
        """Refuse an ack set longer than the entry's batch."""
        size = self.bundle.batch_size(cursor, position)
        if len(ack_set) > -(-size // ack_sets.WORD_BITS):
            raise InvalidMessage(
                f"ack set of {len(ack_set)} words for position {position}: its batch of {size} takes "
                f"{-(-size // ack_sets.WORD_BITS)}"
            )

    def acknowledge_up_to(self, cursor: Cursor, last: int) -> None:
        """Acknowledge all entries up to position *last*."""
        passed = cursor.mark_delete
        if last > passed:
            self.draft.changes_of(cursor).acks.add(passed + 1, last)

    def first_position(self, state: TopicState, partition: int, *, reads_compacted: bool) -> int:
        """The first readable position; a compacted view keeps trimmed ones."""
        first = state.first_position(partition)
        return 0 if first and reads_compacted and CompactedView(state.topic.path).horizon(partition) else first

    def new_cursor(
        self, state: TopicState, request: Request, initial_position: str, *, reads_compacted: bool = False
    ) -> Cursor:
        key = CursorKey(state.topic.topic_id, request.partition or 0, request.subscription or "")
        first = initial_read_position(
            initial_position,
            first=self.first_position(state, key.partition, reads_compacted=reads_compacted),
            end=state.end_position(key.partition),
        )
        check_subscription(key.subscription)
        cursor = Cursor(key, str(state.topic.name), first - 1, first)
        cursor.last_active, cursor.reads_compacted = self.draft.now, reads_compacted
        self.bundle.attach_chunks(cursor)
        self.bundle.cursors[cursor.key] = cursor
        if cursor.chunked:
            cursor.chunked.move(first)
            self.draft.changes_of(cursor).rewrite()
        self.draft.changes_of(cursor).is_changed = True
        return cursor
