"""Requests taken in, in order: who joins and leaves, what is moved, acknowledged and given back.

Control requests change the bundle at once; what concerns ranges (acknowledgements, returns) is only noted, for the plan. A refused request changes nothing and
is answered with an error by name. Rules: semantics 2.1-2.11, 3.11-3.19, 3.26-3.29, 4.2, 4.15, 4.21.
"""
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from pulsar_spark.broker.bundle import DEFAULT_LEASE_MS, Bundle, TopicState
from pulsar_spark.broker.drafts import CursorDraft, Removed, Request, RoundDraft
from pulsar_spark.broker.state import Consumer, Cursor
from pulsar_spark.errors import (ConsumerNotFound, CumulativeAcknowledgementNotAllowedError, InvalidConfiguration, InvalidMessage, InvalidRequest,
                                 NotAllowedError, SubscriptionBusy, SubscriptionNotFound, TopicNotFound)
from pulsar_spark.errors import named as error_named
from pulsar_spark.protocol import ack_set as ack_sets
from pulsar_spark.protocol.cursor import ACKNOWLEDGED, skip_unacked
from pulsar_spark.protocol.failover import Consumer as Candidate
from pulsar_spark.protocol.failover import active_consumer
from pulsar_spark.protocol.membership import refusal
from pulsar_spark.protocol.policies import POLICIES, check_policy
from pulsar_spark.storage.cursor_ledger import CursorKey
from pulsar_spark.storage.ledgers import first_published_at, last_published_before

ANSWERED = {"subscribe", "seek", "unsubscribe", "create_subscription", "skip", "clear_backlog", "expire", "unload", "policy"}
DEAD_LETTER_POLICY = ("max_redeliver_count", "dead_letter_topic", "initial_subscription_name")
"""Properties of a subscribe request that say what becomes of entries given back too often."""


class Intake:
    """Takes requests into a bundle and a round's draft."""

    def __init__(self, bundle: Bundle, draft: RoundDraft):
        self.bundle, self.draft = bundle, draft
        self._handlers: dict[str, Callable[[Request], str | None]] = {
            "subscribe": self._subscribe, "flow": self._flow, "ack": self._ack, "cumulative_ack": self._cumulative_ack,
            "negative_ack": self._negative_ack, "redeliver_all": self._redeliver_all, "seek": self._seek, "unsubscribe": self._unsubscribe,
            "create_subscription": self._create_subscription, "skip": self._skip, "clear_backlog": self._clear_backlog, "expire": self._expire,
            "policy": self._policy, "unload": self._unload, "close": self._close, "keep_alive": lambda request: None}

    def take(self, request: Request) -> None:
        """Take one request in; refused or done, answer it if it wants an answer."""
        self._renew_lease(request.client_id)
        wants_answer = request.kind in ANSWERED or (request.kind == "close" and request.consumer_id) or request.properties.get("receipt") == "true"
        try:
            if request.kind not in self._handlers:
                raise InvalidConfiguration(f"request kind {request.kind!r} is not known: use a client of this release")
            text = self._handlers[request.kind](request)
        except InvalidRequest as refused:
            if wants_answer:
                self.draft.reply(request, error=type(refused).__name__, text=str(refused))
            return
        if wants_answer:
            self.draft.reply(request, self._key(request), text=text)

    def end_leases(self) -> None:
        """Let go of every consumer whose client was not heard of in time."""
        for client_id, until in list(self.bundle.leases.items()):
            if until <= self.draft.now:
                self._leave_client(client_id, "lease ended")
                del self.bundle.leases[client_id]

    def drop_topics(self, gone: list[TopicState]) -> None:
        """Forget topics whose tables are gone, and their subscriptions."""
        for state in gone:
            for cursor in self.bundle.cursors_of(state.topic.topic_id):
                draft = self.draft.of(cursor)
                for consumer_id in list(cursor.consumers):
                    self._leave(cursor, consumer_id, "deleted")
                draft.forget_ranges()
                self.draft.facts += [removed_consumer_row(cursor, removed) for removed in draft.removed]
                del self.draft.cursors[cursor.key], self.bundle.cursors[cursor.key]
            self.draft.facts.append(dict(kind="topic", topic=str(state.topic.name), topic_id=state.topic.topic_id, is_removed=True))

    def pass_trimmed(self, states: list[TopicState]) -> None:
        """Acknowledge what was trimmed from under a cursor that was moved back at that very time."""
        for state in states:
            for cursor in self.bundle.cursors_of(state.topic.topic_id) if state.trimmed else []:
                self._mark_deleted(cursor, state.first_position(cursor.key.partition) - 1)

    # Members

    def _subscribe(self, request: Request) -> str:
        state, properties = self._topic(request), request.properties
        wanted = properties.get("subscription_type", "Exclusive")
        cursor = self.bundle.cursors.get(self._key(request))
        present = (cursor.subscription_type, list(cursor.consumers)) if cursor else (None, [])
        if cursor and request.consumer_id in cursor.consumers:
            return "connected"
        refused = refusal(wanted, present=present[0], consumers=present[1],
                          most=self._policy_value(request.topic, "max_consumers_per_subscription"))
        if refused:
            raise error_named(refused[0])(f"{request.topic} subscription {request.subscription!r}: {refused[1]}")
        if cursor is None:
            cursor = self._new_cursor(state, request, properties.get("initial_position", "Latest"))
        cursor.subscription_type = wanted
        consumer = Consumer(request.consumer_id, properties.get("consumer_name") or request.consumer_id, request.client_id,
                            int(properties.get("priority_level", 0)), cursor.joined, properties=dict(properties))
        cursor.joined += 1
        policy = {name: properties[name] for name in DEAD_LETTER_POLICY if properties.get(name)}
        if "max_redeliver_count" in policy:
            cursor.dead_letters = policy
        cursor.consumers[consumer.consumer_id] = consumer
        self.bundle.lease_ms[request.client_id] = int(properties.get("lease_ms", DEFAULT_LEASE_MS))
        self._renew_lease(request.client_id)
        draft = self.draft.of(cursor)
        draft.is_changed = True
        draft.changed_consumers.add(consumer.consumer_id)
        self._choose_active(cursor, draft)
        return "connected"

    def _close(self, request: Request) -> None:
        if request.consumer_id is None:
            self._leave_client(request.client_id, "closed")
            self.bundle.leases.pop(request.client_id, None)
            return
        cursor = self._cursor(request)
        if request.consumer_id in cursor.consumers:
            self._leave(cursor, request.consumer_id, "closed")

    def _leave_client(self, client_id: str, why: str) -> None:
        for cursor in self.bundle.cursors.values():
            for consumer in [consumer for consumer in cursor.consumers.values() if consumer.client_id == client_id]:
                self._leave(cursor, consumer.consumer_id, why)

    def _leave(self, cursor: Cursor, consumer_id: str, why: str) -> None:
        draft = self.draft.of(cursor)
        draft.removed.append(Removed(cursor.consumers.pop(consumer_id), why))
        draft.left.add(consumer_id)
        draft.changed_consumers.discard(consumer_id)
        draft.is_changed = True
        self._choose_active(cursor, draft)
        if not cursor.consumers:
            cursor.subscription_type, cursor.is_blocked = None, False

    def _choose_active(self, cursor: Cursor, draft: CursorDraft) -> None:
        """On Exclusive and Failover say who receives; what the one before held comes back, uncounted (2.10, 2.11)."""
        before, cursor.active_id = cursor.active_id, None
        if cursor.is_single_active and cursor.consumers:
            candidates = [Candidate(c.consumer_id, c.name, c.priority_level, c.join_order) for c in cursor.consumers.values()]
            cursor.active_id = active_consumer(candidates, partition_index=cursor.key.partition, topic_name=cursor.topic).consumer_id
        if cursor.active_id == before:
            return
        draft.changed_consumers |= {before, cursor.active_id} & cursor.consumers.keys()
        if before is not None:
            draft.left.add(before)
            if cursor.subscription_type == "Failover":
                cursor.reads_after = self.draft.now + self._policy_value(cursor.topic, "active_consumer_failover_delay_ms") * 1000

    def _renew_lease(self, client_id: str | None) -> None:
        if client_id in self.bundle.lease_ms:
            self.bundle.leases[client_id] = self.draft.now + self.bundle.lease_ms[client_id] * 1000

    def _flow(self, request: Request) -> None:
        consumer = self._consumer(request)
        if not request.permits or request.permits < 0:
            raise InvalidConfiguration(f"permits {request.permits!r}: a flow asks for 1 message or more")
        consumer.permits += request.permits
        self.draft.of(self._cursor(request)).changed_consumers.add(consumer.consumer_id)

    # Acknowledgements and returns

    def _ack(self, request: Request) -> None:
        cursor = self._cursor(request)
        self._check_range(cursor, request.first, request.last)
        draft = self.draft.of(cursor)
        if request.ack_set is None:
            draft.acks.append((request.first, request.last))
            return
        if request.first != request.last:
            raise InvalidMessage(f"ack set for positions {request.first} to {request.last}: it goes with one entry")
        given = ack_sets.trimmed(request.ack_set)
        kept = draft.ack_sets.get(request.first)
        draft.ack_sets[request.first] = (ack_sets.intersect(kept[0], given), kept[1]) if kept else (given, False)

    def _cumulative_ack(self, request: Request) -> None:
        cursor = self._cursor(request)
        if cursor.subscription_type and not cursor.is_single_active:
            raise CumulativeAcknowledgementNotAllowedError(f"subscription {request.subscription!r} is {cursor.subscription_type}: acknowledge individually")
        self._check_range(cursor, request.last, request.last)
        last = request.last
        draft = self.draft.of(cursor)
        if request.ack_set is not None:
            draft.ack_sets[last] = (ack_sets.replaced_by_cumulative(self._kept_ack_set(draft, request), request.ack_set), True)
            last -= 1
        self._mark_deleted(cursor, last)

    def _kept_ack_set(self, draft: CursorDraft, request: Request) -> tuple[int, ...]:
        """What is unacknowledged of entry ``last``, with what this round has brought so far."""
        held = draft.cursor.find(request.last)
        kept = held.ack_set if held and held.ack_set is not None else ack_sets.full(held.batch_size) if held and held.batch_size else tuple(request.ack_set)
        given, replaces = draft.ack_sets.get(request.last, (kept, True))
        return given if replaces else ack_sets.intersect(kept, given)

    def _negative_ack(self, request: Request) -> None:
        cursor, consumer = self._cursor(request), self._consumer(request)
        self._check_range(cursor, request.first, request.last)
        due = self.draft.now + max(request.delay_ms or 0, 0) * 1000
        self.draft.of(cursor).returns.append((request.first, request.last, consumer.consumer_id, due))

    def _redeliver_all(self, request: Request) -> None:
        self.draft.of(self._cursor(request)).redelivered.add(self._consumer(request).consumer_id)

    # Moving a cursor

    def _seek(self, request: Request) -> str:
        cursor, state = self._cursor(request), self._topic(request)
        end = state.end_position(cursor.key.partition)
        if "publish_time_ms" in request.properties:
            instant = datetime.fromtimestamp(_number(request, "publish_time_ms") / 1000, timezone.utc)
            target = first_published_at(state.topic.path, state.ledgers(cursor.key.partition), instant)
        else:
            wanted = request.properties.get("position", "")
            target = {"earliest": 0, "latest": end}.get(wanted)
            target = min(max(_number(request, "position"), 0), end) if target is None else target
        target = max(target, state.first_position(cursor.key.partition))
        draft = self.draft.of(cursor)
        draft.forget_ranges()
        draft.dropped_pages += cursor.clear()
        cursor.mark_delete, cursor.read_position, cursor.is_blocked = target - 1, target, False
        draft.is_changed = True
        for consumer in cursor.consumers.values():
            consumer.permits, consumer.is_blocked = 0, False
            draft.changed_consumers.add(consumer.consumer_id)
            self.draft.facts.append(dict(kind="reply", consumer_id=consumer.consumer_id, topic=cursor.topic, topic_id=cursor.key.topic_id,
                                         partition=cursor.key.partition, subscription=cursor.key.subscription, text="reset"))
        return str(target)

    def _skip(self, request: Request) -> None:
        cursor, state = self._cursor(request), self._topic(request)
        acknowledged = sorted([(held.first, held.last) for held in cursor.ranges() if held.status == ACKNOWLEDGED] + self.draft.of(cursor).acks)
        end = state.end_position(cursor.key.partition)
        self._mark_deleted(cursor, skip_unacked(cursor.mark_delete, end, acknowledged, _number(request, "messages")))

    def _clear_backlog(self, request: Request) -> None:
        cursor = self._cursor(request)
        self._mark_deleted(cursor, self._topic(request).end_position(cursor.key.partition) - 1)

    def _expire(self, request: Request) -> None:
        cursor, state = self._cursor(request), self._topic(request)
        oldest = datetime.fromtimestamp(self.draft.now / 1_000_000, timezone.utc) - timedelta(seconds=_number(request, "seconds"))
        self._mark_deleted(cursor, last_published_before(state.topic.path, state.ledgers(cursor.key.partition), oldest))

    def _mark_deleted(self, cursor: Cursor, last: int) -> None:
        if last > cursor.mark_delete:
            self.draft.of(cursor).acks.append((cursor.mark_delete + 1, last))

    # Subscriptions, policies

    def _create_subscription(self, request: Request) -> None:
        if self._key(request) in self.bundle.cursors:
            raise NotAllowedError(f"subscription {request.subscription!r} of {request.topic} exists already")
        self._new_cursor(self._topic(request), request, request.properties.get("initial_position", "Latest"))

    def _unsubscribe(self, request: Request) -> None:
        cursor = self._cursor(request)
        others = [consumer.name for consumer in cursor.consumers.values() if consumer.consumer_id != request.consumer_id]
        if others and request.properties.get("force") != "true":
            raise SubscriptionBusy(f"subscription {request.subscription!r} has {len(others)} other consumers: close them first, or force it")
        for consumer_id in list(cursor.consumers):
            self._leave(cursor, consumer_id, "unsubscribed")
        draft = self.draft.cursors.pop(cursor.key, None)
        self.draft.facts += [removed_consumer_row(cursor, removed) for removed in (draft.removed if draft else [])]
        self.draft.facts.append(dict(kind="cursor", topic=cursor.topic, **cursor.key._asdict(), is_removed=True))
        del self.bundle.cursors[cursor.key]

    def _new_cursor(self, state: TopicState, request: Request, initial_position: str) -> Cursor:
        if initial_position not in ("Earliest", "Latest"):
            raise InvalidConfiguration(f"initial position {initial_position!r}: use Earliest or Latest")
        first = state.first_position(request.partition) if initial_position == "Earliest" else state.end_position(request.partition)
        cursor = Cursor(self._key(request), request.topic, first - 1, first)
        self.bundle.cursors[cursor.key] = cursor
        self.draft.of(cursor).is_changed = True
        return cursor

    def _policy(self, request: Request) -> None:
        name, value = request.properties.get("name"), request.properties.get("value", "")
        check_policy(name, value)
        owner = request.topic or request.properties.get("namespace")
        if not owner:
            raise InvalidConfiguration(f"policy {name}: name the topic or the namespace it is for")
        self.bundle.policies[owner, name] = value
        self.draft.facts.append(dict(kind="policy", topic=owner, properties=[(name, value)]))

    def _unload(self, request: Request) -> None:
        """Nothing to do: what a broker holds in memory is what it committed."""
        self._topic(request)

    # Looking things up

    def _policy_value(self, topic: str, name: str) -> int:
        return self.bundle.policy(topic, name, int(POLICIES[name]))

    def _topic(self, request: Request) -> TopicState:
        if not request.topic or request.partition is None:
            raise TopicNotFound(f"request {request.kind!r} names no topic and partition")
        state = self.bundle.topic(request.topic)
        if request.partition not in state.topic.partition_indexes:
            raise TopicNotFound(f"topic {request.topic!r} has no partition {request.partition}")
        return state

    def _key(self, request: Request) -> CursorKey | None:
        if not request.topic or request.topic not in self.bundle.topics or request.subscription is None:
            return None
        return CursorKey(self.bundle.topics[request.topic].topic.topic_id, request.partition, request.subscription)

    def _cursor(self, request: Request) -> Cursor:
        self._topic(request)
        cursor = self.bundle.cursors.get(self._key(request))
        if cursor is None:
            raise SubscriptionNotFound(f"topic {request.topic!r} has no subscription {request.subscription!r}: create it, or subscribe")
        return cursor

    def _consumer(self, request: Request) -> Consumer:
        consumer = self._cursor(request).consumers.get(request.consumer_id)
        if consumer is None:
            raise ConsumerNotFound(f"consumer {request.consumer_id!r} is not connected to subscription {request.subscription!r}: subscribe again")
        return consumer

    def _check_range(self, cursor: Cursor, first: int | None, last: int | None) -> None:
        end = self.bundle.topics[cursor.topic].end_position(cursor.key.partition)
        if first is None or last is None or not 0 <= first <= last < end:
            raise InvalidMessage(f"positions {first} to {last}: {cursor.topic!r} partition {cursor.key.partition} has entries 0 to {end - 1}")


def removed_consumer_row(cursor: Cursor, removed: Removed) -> dict:
    """The row that says a consumer is gone, and why."""
    return dict(kind="consumer", topic=cursor.topic, **cursor.key._asdict(), consumer_id=removed.consumer.consumer_id, consumer_name=removed.consumer.name,
                client_id=removed.consumer.client_id, is_removed=True, text=removed.why)


def _number(request: Request, name: str) -> int:
    value = request.properties.get(name, "")
    if not value.lstrip("-").isdigit():
        raise InvalidConfiguration(f"{request.kind}: {name} {value!r} is not a whole number")
    return int(value)
