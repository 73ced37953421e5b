"""Acknowledgements and returns, noted for the plan (semantics 3.11-3.20, 4.15, 4.16, 4.21). What is left of a batch
depends on the order of requests (3.20), so it is computed here."""

from collections.abc import Iterable, Iterator

import numpy as np

from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.waiting import reschedule, waiting
from pulsar_spark.broker.requests.drafts import CursorChanges, Return
from pulsar_spark.broker.requests.request import MOST_DELAY_MS, Request, number_of
from pulsar_spark.broker.requests.request_handler import RequestHandler
from pulsar_spark.errors import CumulativeAcknowledgementNotAllowedError, InvalidConfiguration, InvalidMessage
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.cursor import DELIVERY_ROUND, IS_UNSEEN, SINCE_ROUND, UNSEEN
from pulsar_spark.protocol.acknowledgement.packing import named_positions
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.delays.delays import CANCEL, DELIVER_AT_MS, MAX_MS, POSITIONS
from pulsar_spark.protocol.request_properties import is_true
from pulsar_spark.protocol.subscriptions.membership import allows_cumulative

NOTED = ("ack", "negative_ack")
"""Kinds of requests of which there may be one for each of many messages."""


class Acknowledgements(RequestHandler):
    def ack(self, request: Request) -> str | None:
        cursor = self.cursor_of(request)
        first, last = self.check_range(cursor, request.first, request.last)
        changes = self.draft.changes_of(cursor)
        if is_true(request.properties, CANCEL):
            return self._cancel(changes, request, first, last)
        if DELIVERY_ROUND in request.properties:
            delivered = number_of(request, DELIVERY_ROUND, least=0)
            consumer = self.consumer_of(request, cursor)
            if request.ack_set is not None:
                raise InvalidMessage(
                    f"ack set for what round {delivered} delivered of positions {first} to {last}: an ack set is for "
                    "one entry, without a delivery_round"
                )
            changes.delivered_acks.append((first, last, consumer.consumer_id, delivered))
            return None
        if request.ack_set is None:
            changes.acks.add(first, last)
            return None
        if first != last:
            raise InvalidMessage(f"ack set for positions {first} to {last}: an ack set is for one entry")
        if first <= cursor.mark_delete or cursor.is_part(first):
            return None
        self.check_ack_set(cursor, first, request.ack_set)
        changes.ack_sets[first] = ack_sets.intersect(self.kept_ack_set(changes, first), request.ack_set)
        return None

    def _cancel(self, changes: CursorChanges, request: Request, first: int, last: int) -> str:
        """Acknowledge the named entries that wait for their deliver time; returns their number."""
        positions = self._waiting(changes, request, first, last)
        for first, last in ranges_of(positions):
            changes.acks.add(first, last)
        return str(len(positions))

    def reschedule(self, request: Request) -> str:
        """Give the named entries that wait for their deliver time another one; returns their number."""
        cursor = self.cursor_of(request)
        span = self.check_range(cursor, request.first, request.last)
        changes = self.draft.changes_of(cursor)
        due_time = 1000 * number_of(request, DELIVER_AT_MS, most=MAX_MS)
        positions = self._waiting(changes, request, *span)
        if len(positions):
            reschedule(self.bundle, changes, positions, max(due_time, 0))
        return str(len(positions))

    def _waiting(self, changes: CursorChanges, request: Request, first: int, last: int) -> np.ndarray:
        positions = waiting(self.bundle, changes, first, last, self.draft.wall)
        if POSITIONS in request.properties:
            positions = positions[np.isin(positions, named_positions(request.properties[POSITIONS]))]
        return positions

    def cumulative_ack(self, request: Request) -> None:
        cursor = self.cursor_of(request)
        self.check_cumulative(cursor)
        last, _ = self.check_range(cursor, request.last, request.last)
        changes = self.draft.changes_of(cursor)
        if request.ack_set is not None and last > cursor.mark_delete and not cursor.is_part(last):
            left = ack_sets.intersect(ack_sets.full(self.bundle.batch_size(cursor, last)), request.ack_set)
            changes.ack_sets[last] = ack_sets.replaced_by_cumulative(self.kept_ack_set(changes, last), left)
            last -= 1
        self.acknowledge_up_to(cursor, last)

    def check_cumulative(self, cursor: Cursor) -> None:
        if not allows_cumulative(cursor.subscription_type):
            raise CumulativeAcknowledgementNotAllowedError(
                f"subscription {cursor.key.subscription!r} is {cursor.subscription_type}: acknowledge individually"
            )

    def kept_ack_set(self, changes: CursorChanges, position: int) -> ack_sets.AckSet:
        """The unacknowledged indexes of an entry after this round's requests so far; index 0 outside a batch."""
        cursor = changes.cursor
        range_ = cursor.find(position)
        if cursor.is_done(position) or position in changes.acks:
            return ()
        if position in changes.ack_sets:
            return changes.ack_sets[position]
        if range_ and range_.ack_set is not None:
            return range_.ack_set
        return ack_sets.full(self.bundle.batch_size(cursor, position))

    def negative_ack(self, request: Request) -> None:
        cursor = self.cursor_of(request)
        consumer = self.consumer_of(request, cursor)
        first, last = self.check_range(cursor, request.first, request.last)
        delay_ms, is_unseen = max(request.delay_ms or 0, 0), is_true(request.properties, IS_UNSEEN)
        if is_unseen and delay_ms:
            raise InvalidConfiguration(
                f"positions {first} to {last} are given back unseen, with delay_ms "
                f"{delay_ms}: unseen messages have no delay; leave out one of the two"
            )
        self.draft.changes_of(cursor).returns.append(
            Return(first, last, consumer.consumer_id, self.draft.now + delay_ms * 1000, is_unseen)
        )

    def note(self, taken: Request, alike: Iterable[Request]) -> Iterator[Request]:
        """Note requests like *taken*, which is of a kind in :data:`NOTED` and was executed. Yields those to execute one
        by one, because they have more columns or may be refused."""
        cursor = self.cursor_of(taken)
        changes, now, is_ack = self.draft.changes_of(cursor), self.draft.now, taken.kind == "ack"
        consumer_id = taken.consumer_id or ""
        end = self.bundle.topics[cursor.topic].end_position(cursor.key.partition)
        for request in alike:
            first, last, delay_ms = request.first, request.last, request.delay_ms or 0
            is_unseen = not is_ack and delay_ms <= 0 and request.properties == UNSEEN
            if (request.properties and not is_unseen) or request.ack_set is not None or delay_ms > MOST_DELAY_MS:
                yield request
            elif first is None or last is None or not 0 <= first <= last < end:
                yield request
            elif is_ack:
                changes.acks.add(first, last)
            else:
                due_time = now + max(delay_ms, 0) * 1000
                changes.returns.append(Return(first, last, consumer_id, due_time, is_unseen))

    def redeliver_all(self, request: Request) -> None:
        cursor = self.cursor_of(request)
        changes, consumer_id = self.draft.changes_of(cursor), self.consumer_of(request, cursor).consumer_id
        if SINCE_ROUND in request.properties:
            changes.tails.append((consumer_id, number_of(request, SINCE_ROUND, least=0), request.first or 0))
            return
        changes.redelivered.add(consumer_id)
        if cursor.chunked:
            cursor.chunked.begin_anew(consumer_id)
            changes.changed_consumers.add(consumer_id)
