"""The reference broker: dicts and lists, no Spark, no tables, no ranges; the plan of a round must agree with it.

A round takes the requests written since the last one and does, for all subscriptions at once, what design section 4
says in its order: membership and the requests that move a cursor, one after another; then all acknowledgements; then
all returns; then one dispatch. Policies are those of semantics 0 where they differ from Pulsar. Letters are noted, not
published.
"""

from collections import defaultdict
from typing import NamedTuple

from pulsar_spark.errors import ConsumerAssignError, InvalidConfiguration
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.policies.policies import UNACKED_LIMITS, check_policy
from pulsar_spark.protocol.redelivery.letters import RECONSUME_TIMES, reconsume_later_of
from tests.support.model_chunks import Chunk, Chunks, Units, limits_of
from tests.support.model_cursor import Consumer, Cursor, Delivery, Letter
from tests.support.model_delays import Delays
from tests.support.model_keys import DEFAULTS, KEY_SHARED, Key, hash_ranges_of, look_ahead_limit, new_key_shared


class Reply(NamedTuple):
    """An answer: *error* is the name of a class in ``pulsar_spark.errors`` or None. A reset names a consumer and no
    request."""

    request_id: str | None
    consumer_id: str | None
    error: str | None
    text: str | None = None


class Refused(Exception):
    """Carries the name of the refusal to the reply."""


class Model:
    def __init__(
        self,
        *,
        max_unacked_messages_per_consumer: int = 50_000,
        max_unacked_messages_per_subscription: int = 200_000,
        max_consumers_per_subscription: int = 0,
        active_consumer_failover_delay_ms: int = 1_000,
        max_unacked_messages_per_broker: int = 0,
    ):
        self.limits = {
            "max_unacked_messages_per_consumer": max_unacked_messages_per_consumer,
            "max_unacked_messages_per_subscription": max_unacked_messages_per_subscription,
            "max_consumers_per_subscription": max_consumers_per_subscription,
            "active_consumer_failover_delay_ms": active_consumer_failover_delay_ms,
            **DEFAULTS,
        }
        self.broker_limit, self.is_broker_blocked = max_unacked_messages_per_broker, False
        self.policies: dict[str, dict[str, str]] = {}
        self.checked_ms: dict[str, int] = {}
        self.exceeded: set[str] = set()
        self.batches: dict[tuple[str, int], list[int]] = {}
        self.publish_ms: dict[tuple[str, int], list[int]] = {}
        self.delays: dict[tuple[str, int], Delays] = {}
        self.chunks: dict[tuple[str, int], Chunks] = {}
        self.hashes: dict[tuple[str, int], list[int]] = {}
        self.cursors: dict[tuple[str, int, str], Cursor] = {}
        self.dead_letters: dict[tuple[str, str], list[Letter]] = defaultdict(list)
        self.retry_letters: dict[tuple[str, str], list[Letter]] = defaultdict(list)
        self.number = 0
        self.now_ms = 0

    def create_topic(self, topic: str, partitions: int = 0) -> None:
        for partition in range(partitions) if partitions else (-1,):
            for known in (self.batches, self.publish_ms, self.hashes):
                known[topic, partition] = []
            self.delays[topic, partition] = Delays()
            self.chunks[topic, partition] = Chunks()

    def publish(
        self,
        topic: str,
        partition: int,
        entries: list[int],
        publish_time_ms: int | None = None,
        deliver_at_ms: list[int | None] | None = None,
        keys: list[tuple[Key, ...]] | None = None,
        chunks: list[Chunk | None] | None = None,
    ) -> list[int]:
        """Append entries of so many messages each; gives their positions. The time is that of the last round unless
        given; *keys* are those of each entry's messages, one where all have the same."""
        log = self.batches[topic, partition]
        log.extend(entries)
        self.publish_ms[topic, partition].extend(
            [self.now_ms if publish_time_ms is None else publish_time_ms] * len(entries)
        )
        self.delays[topic, partition].deliver_ms.extend(deliver_at_ms or [None] * len(entries))
        self.chunks[topic, partition].entries.extend(chunks or [None] * len(entries))
        self.hashes[topic, partition].extend(
            of_messages[0].hash_code() for of_messages in keys or [(Key(),)] * len(entries)
        )
        return list(range(len(log) - len(entries), len(log)))

    def round(self, requests: list[dict], now_ms: int, number: int | None = None) -> dict:
        """One round. *number* turns the line of Shared consumers; it counts up by itself."""
        self.number = self.number + 1 if number is None else number
        self.now_ms = now_ms
        for place, delays in self.delays.items():
            for part in self.chunks[place].see():
                delays.deliver_ms[part] = None
            delays.see(now_ms)
        for cursor in self.cursors.values():
            cursor.take_complete()
        for cursor in self.cursors.values():
            if cursor.keys:
                cursor.keys.forget_joined(cursor.mark_delete)
        replies = [reply for request in requests for reply in self._answer(request)]
        self._end_leases({request["client_id"] for request in requests})
        self._settle_delays()
        self._maintain()
        deliveries = []
        for cursor in self.cursors.values():
            batches = self.batches[cursor.topic, cursor.partition]
            has_work, asked = cursor.has_work(now_ms), cursor.asking(now_ms)
            if limiting := cursor.limiting:
                cursor.units.expire(limiting.limits, self.publish_ms[cursor.topic, cursor.partition], now_ms)
            cursor.apply_acks(now_ms, batches)
            cursor.apply_returns(now_ms, batches)
            limits = self._limits(cursor.topic)
            look_ahead = look_ahead_limit(limits, len(cursor.consumers)) if cursor.has_limits() else 0
            unread = cursor.read(now_ms, has_work=has_work, look_ahead=look_ahead)
            deliveries += cursor.dispatch(
                batches, unread, limits=limits, asked=asked, round_number=self.number, now_ms=now_ms
            )
        self._hold_back()
        return {"deliveries": sorted(deliveries, key=lambda delivery: delivery[:5]), "replies": replies}

    def _settle_delays(self, of: Cursor | None = None) -> None:
        """Of one cursor, or of all."""
        for cursor in [of] if of else self.cursors.values():
            cursor.settle_delays(has_delays=self._policies(cursor.topic).get("delayed_delivery_active") != "0")

    def restart(self, now_ms: int) -> None:
        """Another broker takes over: it knows all that was committed, hears of every client again, looks after backlogs
        at once, and counts again what is incomplete of what is not acknowledged."""
        for cursor in self.cursors.values():
            cursor.units.walked = min(cursor.units.walked, cursor.visible_mark_delete + 1)
            for consumer in cursor.consumers.values():
                consumer.heard_ms = now_ms
        self.checked_ms = {}

    def state(self, topic: str, partition: int, subscription: str) -> dict:
        """The cursor as plain values; positions are numbers, ranges inclusive pairs, times milliseconds."""
        cursor, batches = self.cursors[topic, partition, subscription], self.batches[topic, partition]
        return {
            "mark_delete_position": cursor.visible_mark_delete,
            "read_position": cursor.read_position,
            "subscription_type": cursor.subscription_type,
            "is_blocked": cursor.is_blocked,
            "is_blocked_by_broker": cursor.is_blocked_by_broker,
            "acknowledged": as_ranges(cursor.acknowledged_behind()),
            "pending": {
                position: (held.consumer_id, held.redelivery_count, held.due_ms)
                for position, held in sorted(cursor.pending.items())
            },
            "replay": {
                position: back.redelivery_count
                for position, back in sorted(cursor.replay.items())
                if back.due_ms is None
            },
            "waits": dict(sorted(cursor.waits_for().items())),
            "ack_sets": dict(sorted(cursor.ack_sets.items())),
            "recently_joined": dict(cursor.keys.recently_joined) if cursor.keys else {},
            "consumers": {
                consumer_id: {
                    "permits": consumer.permits,
                    "unacked": cursor.unacked(batches, consumer_id),
                    "is_active": consumer_id == cursor.active_id if cursor.is_single_active() else None,
                    "is_blocked": consumer.is_blocked,
                }
                for consumer_id, consumer in sorted(cursor.consumers.items())
            },
        }

    def stats(self, topic: str, subscription: str) -> dict[str, int]:
        """What statistics say of a subscription: entries that are backlog (3.28), and those that wait (5.20)."""
        backlog = delayed = 0
        for cursor in self.cursors.values():
            if (cursor.topic, cursor.subscription) == (topic, subscription):
                batches = self.batches[topic, cursor.partition]
                backlog += len(
                    [at for at in range(len(batches)) if not cursor.is_done(at) and not cursor.units.is_part(at)]
                )
                delayed += len([at for at in cursor.waits_for().values() if at > self.now_ms])
        return {"msgBacklog": backlog, "msgDelayed": delayed}

    def letters(self, topic: str, subscription: str) -> list[Letter]:
        """The dead letters of a subscription, of all partitions."""
        return sorted(self.dead_letters[topic, subscription])

    def letters_put_off(self, topic: str, subscription: str) -> list[Letter]:
        """The retry letters of a subscription, of all partitions; *attempts* is how often the message was put off with
        that."""
        return sorted(self.retry_letters[topic, subscription])

    def subscriptions(self, topic: str) -> list[str]:
        return sorted({subscription for name, _, subscription in self.cursors if name == topic})

    def _hold_back(self) -> None:
        """Who is held back from the next round on by the limit of all unacknowledged messages (4.5)."""
        unacked = {
            key: cursor.unacked(self.batches[key[:2]]) for key, cursor in self.cursors.items() if cursor.has_limits()
        }
        out, share = sum(unacked.values()), int(self.broker_limit * 0.16)
        self.is_broker_blocked = self.broker_limit > 0 and (
            out >= self.broker_limit or (self.is_broker_blocked and out >= max(self.broker_limit // 2, 1))
        )
        for key, cursor in self.cursors.items():
            held = unacked.get(key, 0)
            cursor.is_blocked_by_broker = self.is_broker_blocked and (
                held > share or (cursor.is_blocked_by_broker and held >= max(share // 2, 1))
            )

    def _policies(self, topic: str) -> dict[str, str]:
        return self.policies.get(_namespace(topic), {}) | self.policies.get(topic, {})

    def _limits(self, topic: str) -> dict[str, int]:
        return {name: int(self._policies(topic).get(name, default)) for name, default in self.limits.items()}

    def _maintain(self) -> None:
        """Idle subscriptions, time to live and the quota of time, topic by topic; the quota of size is not modelled
        (3.29-3.31)."""
        for topic in {name: None for name, _ in self.publish_ms}:
            policies = self._policies(topic)
            ttl, age, idle, every = (
                int(policies.get(name, default))
                for name, default in (
                    ("message_ttl_seconds", 0),
                    ("backlog_quota_seconds", 0),
                    ("subscription_expiration_minutes", 0),
                    ("ttl_check_seconds", 60),
                )
            )
            every_ms = 1000 if topic in self.exceeded else 1000 * every
            if (
                not (ttl or age or idle or topic in self.exceeded)
                or self.checked_ms.get(topic, -every_ms) + every_ms > self.now_ms
            ):
                continue
            self.checked_ms[topic] = self.now_ms
            if idle:
                self._delete_idle(topic, idle)
            is_evicting = policies.get("backlog_quota_policy") == "consumer_backlog_eviction"
            is_over = [
                self._maintain_cursor(cursor, ttl, age, is_evicting)
                for cursor in self.cursors.values()
                if cursor.topic == topic
            ]
            (self.exceeded.add if any(is_over) and not is_evicting else self.exceeded.discard)(topic)

    def _delete_idle(self, topic: str, minutes: int) -> None:
        """Subscriptions without a consumer on any partition, all of whose cursors nobody came to or left for so long
        (3.31)."""
        for subscription in self.subscriptions(topic):
            cursors = [
                cursor
                for cursor in self.cursors.values()
                if (cursor.topic, cursor.subscription) == (topic, subscription)
            ]
            if not any(
                cursor.consumers or self.now_ms - cursor.last_active_ms <= 60_000 * minutes for cursor in cursors
            ):
                for cursor in cursors:
                    del self.cursors[cursor.topic, cursor.partition, cursor.subscription]

    def _maintain_cursor(self, cursor: Cursor, ttl: int, age: int, is_evicting: bool) -> bool:
        """Is it above the quota?"""
        published_ms, dead_before = self.publish_ms[cursor.topic, cursor.partition], self.now_ms - 1000 * ttl
        if ttl and not self._is_spared(cursor, published_ms, dead_before):
            newest = _newest_before(published_ms, dead_before)
            cursor.meet_early(cursor.read_position, newest)
            for position in range(newest + 1):
                cursor.pass_over(position)
            moved = {position: back.due_ms for position, back in cursor.replay.items() if back.due_ms is not None}
            due_ms = [moved.get(position, at) for position, at in enumerate(cursor.delays.deliver_ms)]
            self._drop_older(cursor, published_ms, dead_before, due_ms)
        too_old = self.now_ms - 1000 * age
        if age and is_evicting:
            self._drop_older(cursor, published_ms, too_old, [None] * len(published_ms))
            begun = cursor.units.begun_up_to(_newest_before(published_ms, too_old))
            cursor.acks += [(unit, unit, None, False) for unit in begun]
        return age > 0 and any(at < too_old for at in published_ms[cursor.visible_mark_delete + 1 :])

    def _is_spared(self, cursor: Cursor, published_ms: list[int], before_ms: int) -> bool:
        """Is it connected, its backlog small and the oldest entry of it not old enough? (3.29)"""
        behind = range(cursor.visible_mark_delete + 1, len(published_ms))
        backlog = [position for position in behind if not cursor.is_done(position)]
        return (
            bool(cursor.consumers)
            and len(backlog) < 1000
            and all(published_ms[position] >= before_ms for position in behind[:1])
        )

    def _drop_older(
        self, cursor: Cursor, published_ms: list[int], before_ms: int, deliver_ms: list[int | None]
    ) -> None:
        """Acknowledge all up to the newest entry published before, but for those whose deliver time is not before
        (0.26). Of what is acknowledged already nothing is asked."""
        newest = _newest_before(published_ms, before_ms)
        cursor.units.release_up_to(newest)
        cursor.acks += [
            (position, position, None, False)
            for position in range(newest + 1)
            if (deliver_ms[position] is None or deliver_ms[position] < before_ms) and not cursor.is_done(position)
        ]

    def _answer(self, request: dict) -> list[Reply]:
        """Do what comes before the acknowledgements, note the rest down at the cursor; the replies in order."""
        kind, properties = request["kind"], request.get("properties") or {}
        has_reply = kind in (
            "subscribe",
            "seek",
            "unsubscribe",
            "create_subscription",
            "skip",
            "clear_backlog",
            "expire",
            "unload",
            "policy",
            "reschedule",
        )
        has_reply |= kind == "close" and request.get("consumer_id") is not None
        has_reply |= properties.get("receipt") == "true"
        more, text, error = [], None, None
        try:
            answer = getattr(self, f"_{kind}")(request, properties)
        except Refused as refusal:
            error = str(refusal)
        else:
            more, text = (answer or [], None) if not isinstance(answer, str) else ([], answer)
        return [Reply(request["request_id"], request.get("consumer_id"), error, text)] * has_reply + more

    def _cursor(self, request: dict) -> Cursor:
        key = (request["topic"], request["partition"], request["subscription"])
        if key[:2] not in self.batches:
            raise Refused("TopicNotFound")
        if key not in self.cursors:
            raise Refused("SubscriptionNotFound")
        return self.cursors[key]

    def _connected(self, request: dict) -> Consumer:
        """The consumer that asks: one that has left, be it earlier in this round, asks in vain."""
        consumer = self._cursor(request).consumers.get(request["consumer_id"])
        if consumer is None:
            raise Refused("ConsumerNotFound")
        return consumer

    def _new_cursor(self, request: dict, initial_position: str) -> Cursor:
        key = (request["topic"], request["partition"], request["subscription"])
        if key[:2] not in self.batches:
            raise Refused("TopicNotFound")
        start = 0 if initial_position == "Earliest" else len(self.batches[key[:2]])
        return self.cursors.setdefault(
            key,
            Cursor(
                *key,
                mark_delete=start - 1,
                read_position=start,
                letters=self.dead_letters[key[0], key[2]],
                last_active_ms=self.now_ms,
                hashes=self.hashes[key[:2]],
                delays=self.delays[key[:2]],
                units=Units(self.chunks[key[:2]]),
            ),
        )

    def _subscribe(self, request: dict, properties: dict) -> None:
        asked = properties["subscription_type"]
        key = (request["topic"], request["partition"], request["subscription"])
        there = self.cursors[key].consumers if key in self.cursors else {}
        if request["consumer_id"] in there:
            there[request["consumer_id"]].permits = 0
            return
        if there and self.cursors[key].subscription_type != asked:
            raise Refused("SubscriptionBusy")
        limit = self._limits(request["topic"])["max_consumers_per_subscription"]
        if there and (asked == "Exclusive" or 0 < limit <= len(there)):
            raise Refused("ConsumerBusy")
        if there and asked == KEY_SHARED and self.cursors[key].keys.refuses(properties):
            raise Refused("SubscriptionBusy")
        is_new = key not in self.cursors
        cursor = self._new_cursor(request, properties["initial_position"])
        if asked == KEY_SHARED and not there:
            cursor.keys = new_key_shared(properties, self._limits(request["topic"]))
        consumer = Consumer(
            request["consumer_id"],
            request["client_id"],
            properties["consumer_name"],
            int(properties.get("priority_level", 0)),
            cursor.joined,
            int(properties["lease_ms"]),
            self.now_ms,
            has_unacked_limits=properties.get("max_unacked_messages") != "0",
            ranges=hash_ranges_of(properties),
            limits=limits_of(properties),
        )
        try:
            cursor.join(consumer, asked, active_from_ms=self._active_from(cursor))
        except ConsumerAssignError as refused:
            cursor.keys = cursor.keys if there else None
            if is_new:
                del self.cursors[key]
            raise Refused("ConsumerAssignError") from refused
        if int(properties.get("max_redeliver_count", 0)):
            cursor.max_redeliver_count = int(properties["max_redeliver_count"])
        cursor.is_asked |= properties.get("max_unacked_messages") == "0"
        cursor.last_active_ms = self.now_ms
        if len(cursor.consumers) == 1:
            self._settle_delays(cursor)  # who comes first says so, also if it leaves in this round

    def _create_subscription(self, request: dict, properties: dict) -> None:
        if (request["topic"], request["partition"], request["subscription"]) in self.cursors:
            raise Refused("NotAllowedError")
        self._new_cursor(request, properties["initial_position"])

    def _flow(self, request: dict, properties: dict) -> None:
        if request["permits"] > 0:
            self._connected(request).permits += request["permits"]

    def _ack(self, request: dict, properties: dict) -> str | None:
        cursor, first, last = self._checked(request, request["first"], request["last"])
        if properties.get("cancel") == "true":
            waiting = cursor.still_waiting(first, last, self.now_ms)
            cursor.acks += [(position, position, None, False) for position in waiting]
            return str(len(waiting))
        left = request.get("ack_set")
        if left is None or cursor.may_be_left(first):
            cursor.acks.append((first, last, None if left is None else tuple(left), False))

    def _reschedule(self, request: dict, properties: dict) -> str:
        cursor, first, last = self._checked(request, request["first"], request["last"])
        waiting = cursor.still_waiting(first, last, self.now_ms)
        cursor.move_deliver_times(waiting, max(int(properties["deliver_at_ms"]), 0))
        return str(len(waiting))

    def _cumulative_ack(self, request: dict, properties: dict) -> None:
        left = request.get("ack_set")
        if self._cursor(request).subscription_type not in (None, "Exclusive", "Failover"):
            raise Refused("CumulativeAcknowledgementNotAllowedError")
        cursor, last, _ = self._checked(request, request["last"], request["last"])
        left = left and ack_sets.intersect(ack_sets.full(self.batches[cursor.topic, cursor.partition][last]), left)
        left = left if cursor.may_be_left(last) else None
        if last > cursor.mark_delete:
            cursor.acks.append((cursor.mark_delete + 1, last - bool(left), None, False))
        if left:
            cursor.acks.append((last, last, tuple(left), True))

    def _reconsume_later(self, request: dict, properties: dict) -> None:
        """A letter, unless the message is acknowledged already, be it in this round; and the acknowledgement (4.23,
        0.27)."""
        asked = reconsume_later_of(properties)
        if asked.is_cumulative and self._cursor(request).subscription_type not in (None, "Exclusive", "Failover"):
            raise Refused("CumulativeAcknowledgementNotAllowedError")
        cursor, first, position = self._checked(request, request["first"], request["last"])
        if cursor.units.is_part(position):
            raise Refused("InvalidMessage")
        batch_size = self.batches[cursor.topic, cursor.partition][position]
        index = 0 if batch_size == 1 else asked.batch_index
        kept = ack_sets.indexes(cursor.kept(position, self.batches[cursor.topic, cursor.partition]))
        if first != position or (
            kept and (index not in range(batch_size) or index in ack_sets.indexes(request.get("ack_set") or ()))
        ):
            raise Refused("InvalidMessage")
        if index in kept:
            letters = self.dead_letters if asked.is_dead else self.retry_letters
            letters[cursor.topic, cursor.subscription].append(
                Letter(
                    cursor.partition, position, index if batch_size > 1 else -1, int(asked.properties[RECONSUME_TIMES])
                )
            )
        if asked.is_cumulative:
            self._cumulative_ack(request, properties)
        else:
            self._ack(request, properties)

    def _negative_ack(self, request: dict, properties: dict) -> None:
        cursor, first, last = self._checked(request, request["first"], request["last"])
        self._connected(request)
        delay_ms, is_unseen = request.get("delay_ms") or 0, properties.get("is_unseen") == "true"
        cursor.negative_acks.append((first, last, request["consumer_id"], delay_ms, is_unseen))

    def _redeliver_all(self, request: dict, properties: dict) -> None:
        self._cursor(request).redeliver_all.add(self._connected(request).consumer_id)

    def _seek(self, request: dict, properties: dict) -> list[Reply]:
        cursor = self._cursor(request)
        end = self._end(cursor)
        if "publish_time_ms" in properties:
            times = self.publish_ms[cursor.topic, cursor.partition]
            target = next(
                (position for position, at in enumerate(times) if at >= int(properties["publish_time_ms"])), end
            )
        else:
            target = {"earliest": 0, "latest": end}.get(properties["position"])
            target = min(max(int(properties["position"]), 0), end) if target is None else target
        cursor.move_to(target)
        return [Reply(None, consumer_id, None, "reset") for consumer_id in sorted(cursor.consumers)]

    def _skip(self, request: dict, properties: dict) -> None:
        """The next n entries that are not acknowledged, be it as a whole and earlier in this round, and all before them
        (3.27); everything where there are not so many."""
        cursor = self._cursor(request)
        asked = {
            position for first, last, left, _ in cursor.acks if left is None for position in range(first, last + 1)
        }
        backlog = [
            position
            for position in range(self._end(cursor))
            if not cursor.is_done(position) and not cursor.units.is_part(position) and position not in asked
        ]
        most = int(properties["messages"])
        last = [cursor.mark_delete, *backlog][most] if most <= len(backlog) else self._end(cursor) - 1
        cursor.done_up_to(last)

    def _clear_backlog(self, request: dict, properties: dict) -> None:
        cursor = self._cursor(request)
        cursor.done_up_to(self._end(cursor) - 1)

    def _expire(self, request: dict, properties: dict) -> None:
        """Up to the newest entry older than so many seconds (3.29)."""
        cursor = self._cursor(request)
        before = self.now_ms - 1000 * int(properties["seconds"])
        old = [position for position, at in enumerate(self.publish_ms[cursor.topic, cursor.partition]) if at < before]
        cursor.units.release_up_to(max(old, default=-1))
        cursor.done_up_to(max(old, default=cursor.mark_delete))

    def _unsubscribe(self, request: dict, properties: dict) -> None:
        cursor = self._cursor(request)
        others = set(cursor.consumers) - {request.get("consumer_id")}
        if others and properties.get("force") != "true":
            raise Refused("BrokerMetadataError" if request.get("consumer_id") else "SubscriptionBusy")
        del self.cursors[request["topic"], request["partition"], request["subscription"]]

    def _policy(self, request: dict, properties: dict) -> None:
        try:
            check_policy(properties["name"], properties.get("value"))
        except InvalidConfiguration as refused:
            raise Refused("InvalidConfiguration") from refused
        owner = request.get("topic") or properties["namespace"]
        policies = self.policies.setdefault(owner, {})
        policies.pop(properties["name"], None)
        if "value" in properties:
            policies[properties["name"]] = properties["value"]
        if properties["name"] in UNACKED_LIMITS:
            for cursor in self.cursors.values():
                cursor.is_asked |= owner in (cursor.topic, _namespace(cursor.topic))
        if properties["name"] == "delayed_delivery_active":
            self._settle_delays()  # for those who are connected now: their leases end behind the requests

    def _close(self, request: dict, properties: dict) -> None:
        if request.get("consumer_id") is not None:
            cursor = self._cursor(request)
            self._leave(cursor, request["consumer_id"])
            return
        for cursor in self.cursors.values():
            for consumer in list(cursor.consumers.values()):
                if consumer.client_id == request["client_id"]:
                    self._leave(cursor, consumer.consumer_id)

    def _keep_alive(self, request: dict, properties: dict) -> None:
        """That it came is all: any request renews the leases of its client."""

    def _unload(self, request: dict, properties: dict) -> None:
        """Everybody who is connected there is let go of."""
        if (request["topic"], request["partition"]) not in self.batches:
            raise Refused("TopicNotFound")
        for cursor in self.cursors.values():
            if (cursor.topic, cursor.partition) == (request["topic"], request["partition"]):
                for consumer_id in list(cursor.consumers):
                    self._leave(cursor, consumer_id)

    def _end_leases(self, heard: set[str]) -> None:
        for cursor in self.cursors.values():
            for consumer in list(cursor.consumers.values()):
                if consumer.client_id in heard:
                    consumer.heard_ms = self.now_ms
                elif consumer.heard_ms + consumer.lease_ms <= self.now_ms:
                    self._leave(cursor, consumer.consumer_id)

    def _leave(self, cursor: Cursor, consumer_id: str) -> None:
        if consumer_id in cursor.consumers:
            cursor.last_active_ms = self.now_ms
        cursor.leave(consumer_id, active_from_ms=self._active_from(cursor))

    def _active_from(self, cursor: Cursor) -> int:
        """From when a consumer that becomes active now may receive."""
        return self.now_ms + self._limits(cursor.topic)["active_consumer_failover_delay_ms"]

    def _checked(self, request: dict, first: int, last: int) -> tuple[Cursor, int, int]:
        """The cursor and positions that exist; else nothing of the request is done."""
        cursor = self._cursor(request)
        if not 0 <= first <= last < self._end(cursor):
            raise Refused("InvalidMessage")
        return cursor, first, last

    def _end(self, cursor: Cursor) -> int:
        return len(self.batches[cursor.topic, cursor.partition])


def _namespace(topic: str) -> str:
    return topic.removeprefix("persistent://").rpartition("/")[0]


def _newest_before(published_ms: list[int], before_ms: int) -> int:
    """The last entry that was published before; -1 where none was."""
    return max((position for position, at in enumerate(published_ms) if at < before_ms), default=-1)


def as_ranges(positions: set[int]) -> list[tuple[int, int]]:
    """Positions as ranges, both ends inclusive, ascending.

    >>> as_ranges({1, 2, 3, 7})
    [(1, 3), (7, 7)]
    """
    ranges: list[tuple[int, int]] = []
    for position in sorted(positions):
        if ranges and ranges[-1][1] + 1 == position:
            ranges[-1] = (ranges[-1][0], position)
        else:
            ranges.append((position, position))
    return ranges


__all__ = ["Delivery", "Letter", "Model", "Reply", "as_ranges"]
