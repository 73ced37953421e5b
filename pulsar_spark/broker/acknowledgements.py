"""Acknowledgements and returns, noted down for the plan.

Rules: semantics 3.11-3.20, 4.15, 4.16, 4.21.
"""
from pulsar_spark.broker.desk import Desk
from pulsar_spark.broker.drafts import CursorDraft, Request
from pulsar_spark.errors import CumulativeAcknowledgementNotAllowedError, InvalidMessage
from pulsar_spark.protocol import ack_set as ack_sets


class Acknowledgements(Desk):
    """Requests about entries."""

    def ack(self, request: Request) -> None:
        cursor = self.cursor_of(request)
        self.check_range(cursor, request.first, request.last)
        draft = self.draft.of(cursor)
        if request.ack_set is None:
            draft.acks.add(request.first, request.last)
            return
        if request.first != request.last:
            raise InvalidMessage(f"ack set for positions {request.first} to {request.last}: it goes with one entry")
        given = ack_sets.trimmed(request.ack_set)
        kept = draft.ack_sets.get(request.first)
        draft.ack_sets[request.first] = (ack_sets.intersect(kept[0], given), kept[1]) if kept else (given, False)

    def cumulative_ack(self, request: Request) -> None:
        cursor = self.cursor_of(request)
        if cursor.subscription_type and not cursor.is_single_active:
            raise CumulativeAcknowledgementNotAllowedError(f"subscription {request.subscription!r} is {cursor.subscription_type}: acknowledge individually")
        self.check_range(cursor, request.last, request.last)
        last = request.last
        draft = self.draft.of(cursor)
        if request.ack_set is not None:
            draft.ack_sets[last] = (ack_sets.replaced_by_cumulative(self._kept_ack_set(draft, request), request.ack_set), True)
            last -= 1
        self.mark_deleted(cursor, last)

    def _kept_ack_set(self, draft: CursorDraft, request: Request) -> tuple[int, ...]:
        """What is unacknowledged of entry ``last``, with what this round has brought so far."""
        held = draft.cursor.find(request.last)
        kept = held.ack_set if held and held.ack_set is not None else ack_sets.full(held.batch_size) if held and held.batch_size else tuple(request.ack_set)
        given, replaces = draft.ack_sets.get(request.last, (kept, True))
        return given if replaces else ack_sets.intersect(kept, given)

    def negative_ack(self, request: Request) -> None:
        cursor, consumer = self.cursor_of(request), self.consumer_of(request)
        self.check_range(cursor, request.first, request.last)
        due = self.draft.now + max(request.delay_ms or 0, 0) * 1000
        self.draft.of(cursor).returns.append((request.first, request.last, consumer.consumer_id, due))

    def redeliver_all(self, request: Request) -> None:
        self.draft.of(self.cursor_of(request)).redelivered.add(self.consumer_of(request).consumer_id)
