"""Put messages off: acknowledge each, and add a row for its letter to the same commit (semantics 4.23-4.25 with 0.27).
A message that is already acknowledged gets no letter."""

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.committing.facts import put_off_letter_row
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.requests.acknowledgements import Acknowledgements
from pulsar_spark.broker.requests.drafts import CursorChanges, RoundDraft
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.errors import InvalidMessage
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.redelivery.letters import ReconsumeLater, reconsume_later_of
from pulsar_spark.protocol.topics.topic_name import check_subscription
from pulsar_spark.storage.topics.topics import resolve_topic


class LetterRequests(Acknowledgements):
    def __init__(self, bundle: Bundle, draft: RoundDraft):
        super().__init__(bundle, draft)
        self._letter_topics: set[str] = set()

    def reconsume_later(self, request: Request) -> None:
        cursor, reconsume_later = self.cursor_of(request), reconsume_later_of(request.properties)
        if reconsume_later.is_cumulative:
            self.check_cumulative(cursor)
        first, position = self.check_range(cursor, request.first, request.last)
        if first != position:
            raise InvalidMessage(f"positions {first} to {position}: put off one message at a time")
        if cursor.is_part(position):
            raise InvalidMessage(
                f"position {position} is not the last chunk of a message: put a chunked message off "
                "by the id of its last chunk"
            )
        changes = self.draft.changes_of(cursor)
        kept = self.kept_ack_set(changes, position)
        if request.ack_set is not None and kept:
            self.check_ack_set(cursor, position, request.ack_set)
        index = self._index_put_off(cursor, position, request, reconsume_later) if kept else None
        if index is not None and ack_sets.has(kept, index):
            self._check_letter_topic(reconsume_later)
            self.draft.facts.append(self._letter(changes, position, request, reconsume_later, index))
        acknowledge = self.cumulative_ack if reconsume_later.is_cumulative else self.ack
        acknowledge(request)

    def _index_put_off(self, cursor: Cursor, position: int, request: Request, reconsume_later: ReconsumeLater) -> int:
        """The batch index of the request, 0 outside a batch; :class:`InvalidMessage` if it does not acknowledge one
        message."""
        batch_size = self.bundle.batch_size(cursor, position)
        index = 0 if batch_size == 1 else reconsume_later.batch_index
        if index is None or index >= batch_size:
            raise InvalidMessage(
                f"position {position} holds a batch of {batch_size} messages without an index "
                f"{reconsume_later.batch_index}: give an index below {batch_size}"
            )
        if request.ack_set is not None and ack_sets.has(request.ack_set, index):
            raise InvalidMessage(
                f"position {position}: the request puts message {index} of the batch off, but does not "
                "acknowledge it: include it in the ack set"
            )
        return index

    def _check_letter_topic(self, reconsume_later: ReconsumeLater) -> None:
        """Create a missing letter topic, or refuse the request."""
        if reconsume_later.initial_subscription_name:
            check_subscription(reconsume_later.initial_subscription_name, "initial subscription")
        if reconsume_later.letter_topic not in self._letter_topics:
            resolve_topic(self.bundle.layout, reconsume_later.letter_topic, create=True)
            self._letter_topics.add(reconsume_later.letter_topic)

    def _letter(
        self, changes: CursorChanges, position: int, request: Request, reconsume_later: ReconsumeLater, index: int
    ) -> dict:
        cursor = changes.cursor
        changes.dead += reconsume_later.is_dead
        cursor.msg_dead_counter += reconsume_later.is_dead
        range_, batch_size = cursor.find(position), self.bundle.batch_size(cursor, position)
        return put_off_letter_row(
            cursor,
            request,
            reconsume_later,
            redelivery_count=(range_.redelivery_count or 0) if range_ else 0,
            batch_size=batch_size,
            ack_set=list(ack_sets.of_indexes([index])) if batch_size > 1 else None,
        )
