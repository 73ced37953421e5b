"""Consumers that join and leave, the active one, and leases. Rules: semantics 2.1-2.11, 2.19, 4.2. Entries of a
consumer that leaves return uncounted."""

from collections.abc import Collection
from functools import partial

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.committing.facts import removed_consumer_row, removed_cursor_row, removed_topic_row
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import honours_delays
from pulsar_spark.broker.delays.waiting import are_forgotten, free_forgotten, stop_waiting, wait_again
from pulsar_spark.broker.gathering.candidates import takers_of
from pulsar_spark.broker.key_shared.key_shared import Newcomer, assign_hashes, newcomer_of, refusal_of, release_hashes
from pulsar_spark.broker.requests.drafts import CursorChanges, Removed, RoundDraft
from pulsar_spark.broker.requests.request import Request, number_of
from pulsar_spark.broker.requests.request_handler import RequestHandler
from pulsar_spark.broker.round.isolation import isolated, of_cursor
from pulsar_spark.errors import ConsumerBusy, TopicStopped
from pulsar_spark.errors import named as error_named
from pulsar_spark.protocol.chunks.chunking import AUTO_ACK_OLDEST, EXPIRE_TIME_MS, MAX_PENDING
from pulsar_spark.protocol.delays.instants import from_micros
from pulsar_spark.protocol.keys.draining import caught_up
from pulsar_spark.protocol.policies.compaction import IS_READ_COMPACTED, reads_compacted_refusal
from pulsar_spark.protocol.policies.policies import MOST_INT32, POLICIES
from pulsar_spark.protocol.redelivery.letters import LATEST_MS, NAME_DEAD_LETTER_TOPIC, dead_letters_to
from pulsar_spark.protocol.request_properties import MOST, is_true
from pulsar_spark.protocol.subscriptions.failover import Consumer as Candidate
from pulsar_spark.protocol.subscriptions.failover import active_consumer, takeover_pause_ms
from pulsar_spark.protocol.subscriptions.membership import (
    DEFAULT_LEASE_MS,
    KEY_SHARED,
    MOST_LEASE_MS,
    ended_leases,
    refusal,
    type_of,
    unsubscribe_refusal,
)
from pulsar_spark.protocol.topics.topic_name import check_subscription, parse_topic_name
from pulsar_spark.storage.topics.topics import check_letter_topic, resolve_topic
from pulsar_spark.table_specs import VALID_UNTIL

DEAD_LETTER_POLICY = ("max_redeliver_count", "dead_letter_topic", "initial_subscription_name")
"""Properties of a subscribe request about entries given back too often."""

MOST_HOLDERS = 3


class Members(RequestHandler):
    def subscribe(self, request: Request) -> str:
        state, wanted = self.topic_of(request), _type_wanted(request)
        if state.error:
            raise TopicStopped(state.error)
        cursor, client_id = self.found(request), request.client_id or ""
        if cursor and request.consumer_id in cursor.consumers:
            return "connected"
        reads_compacted = is_true(request.properties, IS_READ_COMPACTED)
        if reads_compacted and (refused := reads_compacted_refusal(wanted)):
            raise error_named(refused[0])(f"{request.topic} subscription {request.subscription!r}: {refused[1]}")
        newcomer = (
            newcomer_of(request, partial(self.bundle.policy, str(state.topic.name))) if wanted == KEY_SHARED else None
        )
        self._check_may_join(cursor, request, newcomer)
        # Everything else is refused before anything changes.
        dead_letters = self._dead_letter_policy(request)
        priority_level = number_of(request, "priority_level", 0, least=0, most=MOST_INT32)
        _check_chunk_limits(request)
        lease_ms = number_of(request, "lease_ms", DEFAULT_LEASE_MS, least=1, most=MOST_LEASE_MS)
        if cursor is None:
            initial_position = request.properties.get("initial_position", "Latest")
            cursor = self.new_cursor(state, request, initial_position, reads_compacted=reads_compacted)
        self._choose_view(cursor, state, reads_compacted)
        has_waited = not cursor.consumers and cursor.subscription_type is None
        cursor.subscription_type = wanted
        if has_waited:
            self._honour_or_not(cursor)
        if "max_redeliver_count" in dead_letters:
            cursor.dead_letters = dead_letters
        self.bundle.lease_ms[client_id] = lease_ms
        self.renew_lease(client_id)
        self._join(cursor, request, priority_level, newcomer)
        return "connected"

    def _choose_view(self, cursor: Cursor, state: TopicState, reads_compacted: bool) -> None:
        """Set whether the cursor reads compacted; otherwise it passes trimmed entries."""
        if cursor.reads_compacted != reads_compacted and (reads_compacted or not cursor.consumers):
            cursor.reads_compacted = reads_compacted
            if not reads_compacted:
                self.acknowledge_up_to(cursor, state.first_position(cursor.key.partition) - 1)
            self.draft.changes_of(cursor).is_changed = True

    def _honour_or_not(self, cursor: Cursor) -> None:
        """The first consumer decides whether deliver times count."""
        changes = self.draft.changes_of(cursor)
        if honours_delays(self.bundle, cursor):
            wait_again(self.bundle, changes, self.draft.wall)
        else:
            stop_waiting(changes)

    def _check_may_join(self, cursor: Cursor | None, request: Request, newcomer: Newcomer | None) -> None:
        """Refuse a consumer that may not join, after checking that those in the way live."""
        refused = self._refusal(cursor, request, newcomer)
        if refused and cursor:
            clients = (consumer.client_id for consumer in cursor.consumers.values())
            if self._remove_lost(self.bundle.liveness.look_at(clients)):
                refused = self._refusal(cursor, request, newcomer)
        if refused:
            error = error_named(refused[0])
            holders = self._holders(cursor) if issubclass(error, ConsumerBusy) else ""
            raise error(f"{request.topic} subscription {request.subscription!r}: {refused[1]}{holders}")

    def _join(self, cursor: Cursor, request: Request, priority_level: int, newcomer: Newcomer | None) -> None:
        consumer_id = request.consumer_id or ""
        consumer = Consumer(
            consumer_id,
            request.properties.get("consumer_name") or consumer_id,
            request.client_id or "",
            priority_level,
            cursor.joined,
            properties={name: value for name, value in request.properties.items() if name != VALID_UNTIL},
        )
        cursor.joined += 1
        cursor.consumers[consumer.consumer_id] = consumer
        cursor.last_active = self.draft.now
        changes = self.draft.changes_of(cursor)
        changes.is_changed = True
        changes.has_new_limits |= not consumer.has_unacked_limits
        changes.changed_consumers.add(consumer.consumer_id)
        if newcomer:
            assign_hashes(cursor, newcomer, changes)
        self._choose_active(cursor, changes)
        if cursor.chunked:
            cursor.chunked.begin_anew()

    def _refusal(self, cursor: Cursor | None, request: Request, newcomer: Newcomer | None) -> tuple[str, str] | None:
        present, consumers = (cursor.subscription_type, list(cursor.consumers)) if cursor else (None, [])
        refused = refusal(
            _type_wanted(request),
            present=present,
            consumers=consumers,
            most=self.bundle.policy(request.topic or "", "max_consumers_per_subscription"),
        )
        return refusal_of(newcomer, cursor) if refused is None and newcomer else refused

    def _holders(self, cursor: Cursor | None) -> str:
        """Connected consumers, when last heard, and when their leases end."""
        found = []
        for consumer in list(cursor.consumers.values())[:MOST_HOLDERS] if cursor else []:
            until = self.bundle.leases.get(consumer.client_id)
            if until is not None:
                until += self.draft.wall - self.draft.now  # the machine's clock
                heard = until - self.bundle.lease_ms[consumer.client_id] * 1000
                found.append(
                    f"consumer {consumer.name!r} of client {consumer.client_id!r}, last heard of at {_shown(heard)}, "
                    f"whose lease ends at {_shown(until)}"
                )
        return f" (held by {'; '.join(found)})" if found else ""

    def _dead_letter_policy(self, request: Request) -> dict[str, str]:
        """A consumer's dead letter policy, refused now if it cannot be carried out."""
        policy = {name: request.properties[name] for name in DEAD_LETTER_POLICY if request.properties.get(name)}
        number_of(request, "max_redeliver_count", 0, least=0, most=MOST_INT32)
        if "initial_subscription_name" in policy:
            check_subscription(policy["initial_subscription_name"], "initial subscription")
        if "dead_letter_topic" in policy and parse_topic_name(policy["dead_letter_topic"]).partition_index >= 0:
            resolve_topic(self.bundle.layout, policy["dead_letter_topic"])
        if int(policy.get("max_redeliver_count", 0)):
            topic, subscription = request.topic or "", request.subscription or ""
            check_letter_topic(
                self.bundle.layout,
                dead_letters_to(policy, topic, subscription),
                what="dead letter topic",
                subscription=subscription,
                remedy=NAME_DEAD_LETTER_TOPIC,
            )
        return policy

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
    """End the time of newcomers that have caught up, and the wait of entries that no index knows or no policy wants."""
    bundle.cursors.wake(draft.cursors)
    for cursor in bundle.cursors.awake():
        if bundle.set_aside.has(cursor):
            continue
        with isolated(of_cursor(cursor)):
            for consumer_id in caught_up(cursor.recently_joined, cursor.mark_delete):
                del cursor.recently_joined[consumer_id]
                draft.changes_of(cursor).changed_consumers.add(consumer_id)
            if cursor.dues is not None and cursor.consumers and not honours_delays(bundle, cursor):
                stop_waiting(draft.changes_of(cursor))
            if cursor.dues is not None and takers_of(cursor, draft.now) and are_forgotten(cursor):
                free_forgotten(draft.changes_of(cursor))


def _check_chunk_limits(request: Request) -> None:
    number_of(request, MAX_PENDING, 0, least=-MOST_INT32, most=MOST_INT32)
    number_of(request, EXPIRE_TIME_MS, 0, least=0, most=LATEST_MS)
    is_true(request.properties, AUTO_ACK_OLDEST)


def _type_wanted(request: Request) -> str:
    return request.properties.get("subscription_type", "Exclusive")


def _shown(instant: int) -> str:
    return from_micros(instant).isoformat(timespec="seconds")
