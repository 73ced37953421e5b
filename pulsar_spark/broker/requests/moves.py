"""Moves a cursor: seek, skip, clear, expire, and past trimmed entries.

Rules: semantics 3.26-3.29.
"""

from datetime import timedelta
from heapq import merge

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.chunks.chunk_walk import release_until
from pulsar_spark.broker.committing.facts import reset_reply_row
from pulsar_spark.broker.requests.request import Request, number_of
from pulsar_spark.broker.requests.request_handler import RequestHandler
from pulsar_spark.broker.round.isolation import isolated, of_cursor
from pulsar_spark.protocol.acknowledgement.cursor import seek_position, skip_unacked
from pulsar_spark.protocol.delays.instants import from_micros
from pulsar_spark.protocol.redelivery.letters import LATEST_MS
from pulsar_spark.storage.ledgers.publish_times import first_published_at, last_published_before

LONGEST_SECONDS = 10**9
"""Thirty years; no messages are older."""


class Moves(RequestHandler):
    def seek(self, request: Request) -> str:
        cursor, state = self.cursor_of(request), self.topic_of(request)
        end = state.end_position(cursor.key.partition)
        if "publish_time_ms" in request.properties:
            instant = from_micros(1000 * number_of(request, "publish_time_ms", least=0, most=LATEST_MS))
            target = first_published_at(state.topic.path, state.ledgers(cursor.key.partition), instant)
        else:
            named = {"earliest": 0, "latest": end}.get(request.properties.get("position", ""))
            target = number_of(request, "position") if named is None else named
        first = self.first_position(state, cursor.key.partition, reads_compacted=cursor.reads_compacted)
        target = seek_position(target, first=first, end=end)
        changes = self.draft.changes_of(cursor)
        changes.drop_requests()
        cursor.clear(target - 1)
        cursor.read_position, cursor.is_blocked = target, False
        if cursor.chunked:
            cursor.chunked.move(target)
        changes.rewrite()
        cursor.recently_joined = {}
        for consumer in cursor.consumers.values():
            consumer.permits, consumer.is_blocked = 0, False
            changes.changed_consumers.add(consumer.consumer_id)
            self.draft.facts.append(reset_reply_row(cursor, consumer))
        return str(target)

    def skip(self, request: Request) -> str:
        cursor, state = self.cursor_of(request), self.topic_of(request)
        acks, passed = self.draft.changes_of(cursor).acks, cursor.mark_delete
        end = state.end_position(cursor.key.partition)
        acknowledged = merge(cursor.acknowledged(), acks)
        last = skip_unacked(passed, end, acknowledged, number_of(request, "messages", least=0))
        backlog = cursor.backlog(passed + 1, last)
        skipped = sum(until - first + 1 for stretch in backlog for first, until in acks.gaps(*stretch))
        self.acknowledge_up_to(cursor, last)
        return str(skipped)

    def clear_backlog(self, request: Request) -> None:
        cursor = self.cursor_of(request)
        self.acknowledge_up_to(cursor, self.topic_of(request).end_position(cursor.key.partition) - 1)

    def expire(self, request: Request) -> None:
        cursor, state = self.cursor_of(request), self.topic_of(request)
        oldest = from_micros(self.draft.wall) - timedelta(
            seconds=number_of(request, "seconds", least=0, most=LONGEST_SECONDS)
        )
        ledgers = state.ledgers(cursor.key.partition)
        last = last_published_before(state.topic.path, ledgers, oldest, cursor.mark_delete)
        release_until(self.draft.changes_of(cursor), last)
        if last > cursor.mark_delete:
            self.draft.changes_of(cursor).expire(cursor.mark_delete + 1, last)

    def pass_trimmed(self, states: list[TopicState]) -> None:
        """Acknowledge trimmed entries for cursors moved back before them."""
        for state in states:
            for cursor in self.bundle.cursors.of_topic(state.topic.topic_id) if state.trimmed else []:
                partition = cursor.key.partition
                is_behind = cursor.mark_delete + 1 < state.first_position(partition)
                if is_behind and not self.bundle.set_aside.has(cursor):
                    with isolated(of_cursor(cursor)):
                        first = self.first_position(state, partition, reads_compacted=cursor.reads_compacted)
                        self.acknowledge_up_to(cursor, first - 1)
