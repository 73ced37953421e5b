"""One life of a DataFrame consumer: one consumer id on all partitions, until it leaves or loses deliveries.

After a lost lease or a moved cursor the next life has a new id. So an id has handled everything delivered to it up to
some round, on which an exactly-once sink relies."""

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pulsar_spark.client.arguments import check_type, one_of
from pulsar_spark.client.model.policies import ConsumerKeySharedPolicy
from pulsar_spark.errors import InvalidConfiguration, PulsarSparkError
from pulsar_spark.frames.deliveries.delivery import Answer, Delivery
from pulsar_spark.frames.deliveries.delivery_rows import chunked_of_row, ranges_of_row
from pulsar_spark.frames.deliveries.named_entries import Delivered
from pulsar_spark.link.channel import Channel
from pulsar_spark.protocol.acknowledgement.cursor import DELIVERY_ROUND, UNSEEN
from pulsar_spark.protocol.subscriptions.membership import (
    CONNECTED_BEFORE,
    DEFAULT_LEASE_MS,
    KEY_SHARED,
    SUBSCRIPTION_TYPES,
)
from pulsar_spark.protocol.topics.topic_name import check_own_name, check_subscription
from pulsar_spark.storage.topics.topics import Topic

if TYPE_CHECKING:
    from pulsar_spark.frames.consuming.letters import FrameLetters

MAX_MESSAGES = 4_000_000
"""The most messages of a delivery or micro-batch, unless another number is given."""
INITIAL_POSITIONS = ("Latest", "Earliest")
GONE = ("unsubscribed", "deleted")
"""Why a consumer was removed whose subscription or topic is gone."""
DEFAULT_INITIAL_POSITION: Literal["Earliest"] = "Earliest"
"""Where new subscriptions of DataFrame consumers start (see :func:`consume`)."""


class SubscribeOptions(NamedTuple):
    """Options that a subscribe request carries."""

    subscription: str
    subscription_type: str
    consumer_name: str
    initial_position: str
    priority_level: int = 0
    letters: "FrameLetters | None" = None
    key_shared_policy: ConsumerKeySharedPolicy | None = None
    lease_ms: int = DEFAULT_LEASE_MS

    @classmethod
    def checked(
        cls,
        subscription: str,
        subscription_type: object,
        consumer_name: str | None,
        initial_position: object,
        priority_level: int,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
    ) -> "SubscribeOptions":
        """The options; :class:`InvalidConfiguration` for invalid ones. A missing consumer name is generated."""
        check_type(ConsumerKeySharedPolicy | None, key_shared_policy, "key_shared_policy")
        is_of_java = subscription_type == "Key_Shared"  # the spelling of Java's client
        options = cls(
            check_subscription(subscription),
            one_of("subscription_type", KEY_SHARED if is_of_java else subscription_type, SUBSCRIPTION_TYPES),
            check_own_name("consumer", consumer_name) if consumer_name else uuid.uuid4().hex[:10],
            one_of("initial_position", initial_position, INITIAL_POSITIONS),
            priority_level,
            key_shared_policy=key_shared_policy,
        )
        if key_shared_policy is not None and not options.is_key_shared:
            raise InvalidConfiguration(
                f"key_shared_policy does not apply to a subscription of type {options.subscription_type!r}: "
                f"leave it out, or subscribe as {KEY_SHARED}"
            )
        return options

    @property
    def is_key_shared(self) -> bool:
        return self.subscription_type == KEY_SHARED

    def properties(self) -> dict[str, str]:
        return {
            "consumer_name": self.consumer_name,
            "subscription_type": self.subscription_type,
            "priority_level": str(self.priority_level),
            "initial_position": self.initial_position,
            "lease_ms": str(self.lease_ms),
            "max_unacked_messages": "0",
            **(self.key_shared_policy.request_properties() if self.key_shared_policy else {}),
            **(self.letters.request_properties() if self.letters else {}),
        }


class Lost(NamedTuple):
    """The life is over; *text* is the reason, None after the cursor moved."""

    text: str | None


class Failed(NamedTuple):
    """The connection to the broker has failed for good."""

    error: PulsarSparkError


class Joined(NamedTuple):
    """The round in which a consumer joined; ``was_there``: it was connected before on all partitions, and keeps its
    entries."""

    round: int
    was_there: bool


class _Collected(NamedTuple):
    ranges: list[Delivered]
    chunked: list[tuple[int, int, int]]


class Membership:
    """The subscriptions of one consumer id, given or new. *notify* is called in the channel's thread with this
    membership and a Delivery, Lost or Failed."""

    def __init__(
        self,
        channel: Channel,
        topic: Topic,
        partitions: list[int],
        options: SubscribeOptions,
        notify: Callable[["Membership", Delivery | Lost | Failed], None],
        consumer_id: str | None = None,
    ):
        self.consumer_id, self._has_given_id = consumer_id or uuid.uuid4().hex, consumer_id is not None
        self._channel, self._topic, self._partitions = channel, topic, partitions
        self._options, self._notify = options, notify
        self._collected: dict[tuple[int, int], _Collected] = {}

    def join(self, timeout: float, permits: int) -> Joined:
        """Subscribe on every partition or on none, and grant *permits* messages on each; raises the broker's refusal,
        or Timeout.

        On several partitions permits follow once all subscriptions succeeded, so that a refused consumer gets
        nothing. A consumer that was connected before stays so."""
        return self._join(self._partitions, self._options, timeout, permits)

    def join_added(self, partitions: list[int], timeout: float, permits: int) -> None:
        self._join(partitions, self._options._replace(initial_position="Earliest"), timeout, permits)
        self._partitions = [*self._partitions, *partitions]

    def _join(self, partitions: list[int], options: SubscribeOptions, timeout: float, permits: int) -> Joined:
        for partition in partitions:
            self._channel.attach(self.consumer_id, str(self._topic.name), partition, _PartitionMembership(self))
        rows = [self.row("subscribe", partition, properties=options.properties()) for partition in partitions]
        flows = [self.row("flow", partition, permits=permits) for partition in partitions if permits]
        is_joined, to_leave = False, [] if self._has_given_id else partitions
        try:
            is_one = len(partitions) == 1
            replies = self._channel.ask(rows, timeout, followed_by=flows if is_one else ())
            to_leave = [each for each, reply in zip(partitions, replies) if reply.text != CONNECTED_BEFORE]
            if refusals := [reply.error for reply in replies if reply.error is not None]:
                raise refusals[0]
            if not is_one:
                self._channel.submit(flows)
            is_joined = True
            rounds, texts = ({getattr(reply, name) for reply in replies} for name in ("round", "text"))
            return Joined(max(rounds), texts == {CONNECTED_BEFORE})
        finally:
            if not is_joined:  # refused, timed out, or interrupted
                self._leave(to_leave)

    def leave(self) -> None:
        self._leave(self._partitions)

    def take_permits_back(self) -> None:
        """Let nothing more come, without waiting for a reply: a consumer that subscribes again has no permits."""
        properties = self._options.properties()
        self._channel.submit([self.row("subscribe", each, properties=properties) for each in self._partitions])

    def _leave(self, partitions: list[int]) -> None:
        for partition in partitions:
            self._channel.detach(self.consumer_id, str(self._topic.name), partition)
        if partitions and self._channel.failure is None:
            self._channel.submit([self.row("close", partition) for partition in partitions], is_urgent=True)

    def row(self, kind: str, partition: int, **columns: object) -> dict:
        return self._channel.make(
            kind,
            consumer_id=self.consumer_id,
            topic=str(self._topic.name),
            partition=partition,
            subscription=self._options.subscription,
            **columns,
        )

    def answer_rows(self, reply: Answer, delays_ms: Sequence[int]) -> list[dict]:
        """Requests that answer a delivery. Ranges given back wait for *delays_ms*; unseen ones come again at once."""
        acknowledged = (
            self.row(
                "ack",
                done.partition,
                first=done.first,
                last=done.last,
                ack_set=None if done.ack_set is None else list(done.ack_set),
                properties={} if done.delivery_round is None else {DELIVERY_ROUND: str(done.delivery_round)},
            )
            for done in reply.acknowledged
        )
        given_back = (
            self.row("negative_ack", range_.partition, first=range_.first, last=range_.last, delay_ms=delay_ms)
            for range_, delay_ms in zip(reply.given_back, delays_ms, strict=True)
        )
        unseen = (
            self.row("negative_ack", range_.partition, first=range_.first, last=range_.last, properties=UNSEEN)
            for range_ in reply.unseen
        )
        return [*acknowledged, *given_back, *unseen]

    def collect(
        self, round_number: int, ranges: Sequence[Delivered], requests_version: int, chunked: list[tuple[int, int, int]]
    ) -> None:
        """Collect a round's ranges and its *chunked* messages, to pass them on together."""
        if not self._collected:
            self._channel.call_later(0, self._pass_on)
        collected = self._collected.setdefault((round_number, requests_version), _Collected([], []))
        collected.ranges.extend(ranges)
        collected.chunked.extend(chunked)

    def _pass_on(self) -> None:
        collected, self._collected = self._collected, {}
        for (round_number, requests_version), found in sorted(collected.items(), key=lambda each: each[0]):
            self._notify(
                self,
                Delivery(
                    str(self._topic.name),
                    self._topic.topic_id,
                    self._options.subscription,
                    self.consumer_id,
                    round_number,
                    tuple(found.ranges),
                    requests_version,
                    tuple(found.chunked),
                ),
            )

    def lost(self, text: str | None) -> None:
        self._notify(self, Lost(text))

    def failed(self, error: PulsarSparkError) -> None:
        self._notify(self, Failed(error))


class _PartitionMembership:
    def __init__(self, membership: Membership):
        self._membership = membership
        self.wants_due_first = False  # a frame has no order

    def on_reset(self) -> None:
        self._membership.lost(None)

    def on_removed(self, text: str | None) -> None:
        self._membership.lost(text or "removed")

    def on_active(self, is_active: bool) -> None:
        """Do nothing: an inactive consumer receives nothing."""

    def on_delivery(self, row: dict, requests_version: int) -> None:
        self._membership.collect(row["round"], ranges_of_row(row), requests_version, chunked_of_row(row))

    def on_failure(self, error: PulsarSparkError) -> None:
        self._membership.failed(error)
