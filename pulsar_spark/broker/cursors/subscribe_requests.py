"""Let consumers join subscriptions, which are created if needed. Rules: semantics 2.1-2.5, 3.15, 4.26."""

from functools import partial

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.members import Members
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import honours_delays
from pulsar_spark.broker.delays.waiting import stop_waiting, wait_again
from pulsar_spark.broker.key_shared.key_shared import Newcomer, assign_hashes, newcomer_of, refusal_of
from pulsar_spark.broker.requests.request import Request, number_of
from pulsar_spark.errors import ConsumerBusy, NotAllowedError, TopicStopped
from pulsar_spark.errors import named as error_named
from pulsar_spark.protocol.chunks.chunking import AUTO_ACK_OLDEST, EXPIRE_TIME_MS, MAX_PENDING
from pulsar_spark.protocol.delays.instants import from_micros
from pulsar_spark.protocol.policies.compaction import IS_READ_COMPACTED, reads_compacted_refusal
from pulsar_spark.protocol.policies.policies import MOST_INT32
from pulsar_spark.protocol.redelivery.letters import LATEST_MS, NAME_DEAD_LETTER_TOPIC, dead_letters_to
from pulsar_spark.protocol.request_properties import is_true
from pulsar_spark.protocol.subscriptions.membership import (
    CONNECTED,
    CONNECTED_BEFORE,
    DEFAULT_LEASE_MS,
    KEY_SHARED,
    MOST_LEASE_MS,
    refusal,
)
from pulsar_spark.protocol.topics.topic_name import check_subscription, parse_topic_name
from pulsar_spark.storage.topics.topics import check_letter_topic, resolve_topic
from pulsar_spark.table_specs import VALID_UNTIL

DEAD_LETTER_POLICY = ("max_redeliver_count", "dead_letter_topic", "initial_subscription_name")
"""Properties of a subscribe request about entries given back too often."""

MOST_HOLDERS = 3
"""Most consumers in the way that an error names."""


class SubscribeRequests(Members):
    def subscribe(self, request: Request) -> str:
        """Connect a consumer. One that is connected keeps its entries, and its permits begin anew; it belongs to the
        client that subscribed last."""
        state, wanted = self.topic_of(request), _type_wanted(request)
        if state.error:
            raise TopicStopped(state.error)
        cursor, client_id = self.find_cursor(request), request.client_id or ""
        lease_ms = number_of(request, "lease_ms", DEFAULT_LEASE_MS, least=1, most=MOST_LEASE_MS)
        if cursor and request.consumer_id in cursor.consumers:
            consumer = cursor.consumers[request.consumer_id]
            consumer.permits, consumer.client_id = 0, client_id
            self.draft.changes_of(cursor).changed_consumers.add(consumer.consumer_id)
            self._grant_lease(client_id, lease_ms)
            return CONNECTED_BEFORE
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
        self._grant_lease(client_id, lease_ms)
        self._join(cursor, request, priority_level, newcomer)
        return CONNECTED

    def _grant_lease(self, client_id: str, lease_ms: int) -> None:
        self.bundle.lease_ms[client_id] = lease_ms
        self.renew_lease(client_id)

    def create_subscription(self, request: Request) -> None:
        if self.key_of(request) in self.bundle.cursors:
            raise NotAllowedError(f"subscription {request.subscription!r} of {request.topic} exists already")
        self.new_cursor(self.topic_of(request), request, request.properties.get("initial_position", "Latest"))

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


def _check_chunk_limits(request: Request) -> None:
    number_of(request, MAX_PENDING, 0, least=-MOST_INT32, most=MOST_INT32)
    number_of(request, EXPIRE_TIME_MS, 0, least=0, most=LATEST_MS)
    is_true(request.properties, AUTO_ACK_OLDEST)


def _type_wanted(request: Request) -> str:
    return request.properties.get("subscription_type", "Exclusive")


def _shown(instant: int) -> str:
    return from_micros(instant).isoformat(timespec="seconds")
