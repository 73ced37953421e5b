"""Consumers that leave, the active one, and leases. Rules: semantics 2.1-2.11, 2.19, 4.2. Entries of a consumer that
leaves return uncounted."""

from collections.abc import Collection

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.committing.facts import removed_consumer_row, removed_cursor_row, removed_topic_row
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import honours_delays
from pulsar_spark.broker.delays.waiting import are_forgotten, free_forgotten, stop_waiting
from pulsar_spark.broker.gathering.candidates import takers_of
from pulsar_spark.broker.key_shared.key_shared import release_hashes
from pulsar_spark.broker.requests.drafts import CursorChanges, Removed, RoundDraft
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.requests.request_handler import RequestHandler
from pulsar_spark.broker.round.isolation import isolated, of_cursor
from pulsar_spark.errors import named as error_named
from pulsar_spark.protocol.keys.draining import caught_up
from pulsar_spark.protocol.policies.policies import POLICIES
from pulsar_spark.protocol.request_properties import MOST, is_true
from pulsar_spark.protocol.subscriptions.failover import Consumer as Candidate
from pulsar_spark.protocol.subscriptions.failover import active_consumer, takeover_pause_ms
from pulsar_spark.protocol.subscriptions.membership import ended_leases, type_of, unsubscribe_refusal


class Members(RequestHandler):
    def flow(self, request: Request) -> None:
        consumer = self.consumer_of(request)
        consumer.permits = min(consumer.permits + (request.permits or 0), MOST)
        self.draft.changes_of(self.cursor_of(request)).changed_consumers.add(consumer.consumer_id)

    def close(self, request: Request) -> None:
        if request.consumer_id is None:
            self._leave_client(client_id := request.client_id or "", "closed")
            self.bundle.leases.pop(client_id, None)
            return
        cursor = self.cursor_of(request)
        if request.consumer_id in cursor.consumers:
            self._leave(cursor, request.consumer_id, "closed")

    def unsubscribe(self, request: Request) -> None:
        cursor = self.cursor_of(request)
        others = [
            consumer.name for consumer in cursor.consumers.values() if consumer.consumer_id != request.consumer_id
        ]
        by_consumer = request.consumer_id is not None
        refused = unsubscribe_refusal(others, is_forced=is_true(request.properties, "force"), by_consumer=by_consumer)
        if refused:
            raise error_named(refused[0])(f"subscription {request.subscription!r} {refused[1]}")
        self.delete(cursor)

    def unload(self, request: Request) -> None:
        """Disconnect a topic partition's consumers, as Pulsar does; unacknowledged entries come again, uncounted
        (2.19)."""
        state = self.topic_of(request)
        for cursor in self.bundle.cursors.of_topic(state.topic.topic_id):
            if cursor.key.partition == request.partition and not self.bundle.set_aside.has(cursor):
                for consumer_id in list(cursor.consumers):
                    self._leave(cursor, consumer_id, "unloaded")

    def delete(self, cursor: Cursor) -> None:
        for consumer_id in list(cursor.consumers):
            self._leave(cursor, consumer_id, "unsubscribed")
        changes = self.draft.cursors.pop(cursor.key, None)
        self.draft.facts += [removed_consumer_row(cursor, *removed) for removed in (changes.removed if changes else [])]
        self.draft.facts.append(removed_cursor_row(cursor))
        del self.bundle.cursors[cursor.key]
        if entry := self.bundle.set_aside.cursor(cursor):
            self.forget(entry)

    def end_leases(self, gone: Collection[str] = ()) -> None:
        """Remove consumers whose lease ended, and those of clients known to be *gone*."""
        self._remove_lost(gone)
        for client_id in list(ended_leases(self.bundle.leases, self.draft.now)):
            if self.bundle.liveness.has_sign(client_id):
                self.bundle.renew_lease(client_id, self.draft.now)
                continue
            self._leave_client(client_id, "lease ended")
            del self.bundle.leases[client_id]

    def _remove_lost(self, gone: Collection[str]) -> bool:
        """Remove consumers of clients known to be gone; returns whether there were any."""
        for client_id in gone:
            self._leave_client(client_id, "process gone")
            self.bundle.leases.pop(client_id, None)
        return bool(gone)

    def drop_topics(self, gone: list[TopicState]) -> None:
        """Forget deleted topics with their subscriptions and policies."""
        for state in gone:
            name = str(state.topic.name)
            for _, policy in [key for key in self.bundle.policies if key[0] == name and key[1] in POLICIES]:
                self.draft.facts.append(self.bundle.set_policy(name, policy, None))
            for cursor in self.bundle.cursors.of_topic(state.topic.topic_id):
                changes = self.draft.changes_of(cursor)
                for consumer_id in list(cursor.consumers):
                    self._leave(cursor, consumer_id, "deleted")
                changes.drop_requests()
                self.draft.facts += [removed_consumer_row(cursor, *removed) for removed in changes.removed]
                del self.draft.cursors[cursor.key], self.bundle.cursors[cursor.key]
            self.bundle.forget_delayed(state.topic.topic_id)
            self.draft.facts.append(removed_topic_row(state))
            for entry in [entry for entry in self.bundle.set_aside.values() if entry.topic_id == state.topic.topic_id]:
                self.forget(entry)

    def _leave_client(self, client_id: str, why: str) -> None:
        for cursor in self.bundle.cursors.values():
            for consumer in [consumer for consumer in cursor.consumers.values() if consumer.client_id == client_id]:
                self._leave(cursor, consumer.consumer_id, why)

    def _leave(self, cursor: Cursor, consumer_id: str, why: str) -> None:
        changes = self.draft.changes_of(cursor)
        changes.removed.append(Removed(cursor.consumers.pop(consumer_id), why))
        changes.left.add(consumer_id)
        cursor.last_active = self.draft.now
        changes.changed_consumers.discard(consumer_id)
        changes.is_changed = True
        release_hashes(cursor, consumer_id, changes)
        if cursor.chunked:
            cursor.chunked.begin_anew(consumer_id)
        self._choose_active(cursor, changes)
        cursor.subscription_type = type_of(cursor.subscription_type, cursor.consumers)
        if cursor.subscription_type is None:
            cursor.is_blocked, cursor.is_blocked_by_broker = False, False

    def _choose_active(self, cursor: Cursor, changes: CursorChanges) -> None:
        """Choose the active consumer on Exclusive and Failover; the previous one's entries return uncounted (2.10,
        2.11)."""
        before, cursor.active_id = cursor.active_id, None
        if cursor.is_single_active and cursor.consumers:
            candidates = [
                Candidate(c.consumer_id, c.name, c.priority_level, c.join_order) for c in cursor.consumers.values()
            ]
            active = active_consumer(candidates, partition_index=cursor.key.partition, topic_name=cursor.topic)
            cursor.active_id = active.consumer_id if active else None
        if cursor.active_id == before:
            return
        changes.changed_consumers |= cursor.consumers.keys() & {before, cursor.active_id}
        if before is not None:
            changes.left.add(before)
            delay_ms = self.bundle.policy(cursor.topic, "active_consumer_failover_delay_ms")
            pause_ms = takeover_pause_ms(cursor.subscription_type or "", delay_ms)
            if pause_ms is not None:
                cursor.reads_after = self.draft.now + pause_ms * 1000

    def renew_lease(self, client_id: str | None) -> None:
        if client_id in self.bundle.lease_ms:
            self.bundle.renew_lease(client_id, self.draft.now)


def end_waits(bundle: Bundle, draft: RoundDraft) -> None:
    """Let newcomers that have caught up get any entry, and entries be delivered whose deliver times no longer count or
    are unknown to the delay index."""
    bundle.cursors.wake(draft.cursors)
    for cursor in bundle.cursors_at_work():
        with isolated(of_cursor(cursor)):
            for consumer_id in caught_up(cursor.recently_joined, cursor.mark_delete):
                del cursor.recently_joined[consumer_id]
                draft.changes_of(cursor).changed_consumers.add(consumer_id)
            if cursor.dues is not None and cursor.consumers and not honours_delays(bundle, cursor):
                stop_waiting(draft.changes_of(cursor))
            if cursor.dues is not None and takers_of(cursor, draft.now) and are_forgotten(cursor):
                free_forgotten(draft.changes_of(cursor))
