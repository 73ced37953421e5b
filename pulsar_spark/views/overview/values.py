"""What a look at a root returns. Durations are in seconds, rates a second, instants in UTC."""

from datetime import datetime
from typing import NamedTuple

STOPPED, SET_ASIDE, NO_BROKER, ALL_DELAYED = "stopped", "set_aside", "no_broker", "all_delayed"
NO_CONSUMERS, UNACKED_LIMIT, NO_PERMITS, KEY_DRAINS = "no_consumers", "unacked_limit", "no_permits", "key_drains"
BLOCKED = {
    STOPPED: "the topic's log cannot be read further",
    SET_ASIDE: "the broker failed on the topic or the subscription, which waits until somebody asks for another try",
    NO_BROKER: "no broker serves the topic",
    ALL_DELAYED: "all that is left waits for its deliver time, or for the time after which it was given back",
    NO_CONSUMERS: "no consumer is connected",
    UNACKED_LIMIT: "a limit of unacknowledged messages is reached: of the broker, the subscription or its consumers",
    NO_PERMITS: "no consumer that may receive has permits: their queues are full, or they do not receive",
    KEY_DRAINS: "keys wait for entries that a consumer must acknowledge or give back first",
}
"""Why a subscription's backlog is not delivered now, by word; the first that applies counts. A consumer that is paused
by its client asks for no permits."""


class ConsumerState(NamedTuple):
    """A connected consumer of a subscription, on one topic partition or summed over those of a topic."""

    consumer_id: str
    consumer_name: str
    client_id: str | None
    priority_level: int
    permits: int
    unacked: int
    """Messages delivered to it and not acknowledged."""
    oldest_unacked_seconds: float | None
    delivered: int
    """Messages, since it connected."""
    redelivered: int
    rate_out: float
    rate_redelivered: float
    is_active: bool | None
    """Does it receive on an Exclusive or Failover subscription? None on others."""
    is_blocked: bool
    """Is it held back by its limit of unacknowledged messages?"""
    lease_time: datetime | None
    """When it counts as gone, by the broker's clock, unless its client is heard before."""


class SubscriptionState(NamedTuple):
    """A subscription on one topic partition, or summed over the partitions of its topic.

    Counters grow from the making of the subscription on. ``backlog`` and ``delayed`` count entries, a batch as one, as
    in Pulsar; all other counts are messages.
    """

    topic: str
    partition: int | None
    """-1 on a topic without partitions; None if summed over partitions."""
    subscription: str
    subscription_type: str | None
    """Exclusive, Failover, Shared or KeyShared; None without consumers."""
    backlog: int
    """Entries not acknowledged, with delayed ones."""
    delayed: int
    """Those among them that wait for their deliver time, as far as consumers met them, or that were put off."""
    oldest_publish_time: datetime | None
    """When the oldest entry of the backlog was published that does not wait for its deliver time, by the producer's
    clock and to the precision of its file; None for none."""
    backlog_age_seconds: float | None
    """The time since then."""
    unacked: int
    """Messages delivered and not acknowledged."""
    oldest_unacked_seconds: float | None
    delivered: int
    redelivered: int
    """Messages among the delivered that had been delivered before."""
    acknowledged: int
    dead: int
    """Messages that were given back too often, or put off too often."""
    waiting_letters: int
    """Messages whose letters could not be written yet."""
    letterless: int
    """Messages that were deleted or trimmed before their letter was written."""
    rate_in: float
    """Messages published to the topic partition."""
    rate_out: float
    rate_redelivered: float
    rate_acknowledged: float
    rate_dead: float
    consumers: tuple[ConsumerState, ...]
    """In the order in which they joined."""
    blocked: str | None
    """Why the backlog is not delivered now: a word of BLOCKED; None if nothing is left, or is being delivered."""
    error: str | None
    """What the broker failed on, if the subscription or its topic is set aside or stopped; else why the topic's files
    cannot be read, and the numbers are of the rounds' rows alone."""
    mark_delete_position: int
    """All entries up to here are acknowledged. Summed over partitions: the sum of mark-deletes."""
    read_position: int
    end_position: int

    @property
    def backlog_no_delayed(self) -> int:
        return self.backlog - self.delayed

    @property
    def permits(self) -> int:
        return sum(consumer.permits for consumer in self.consumers)


def severity(state: SubscriptionState) -> tuple:
    """Sorts the worst backlog first."""
    return -state.backlog, -(state.backlog_age_seconds or 0.0), state.topic, state.partition or 0, state.subscription


class TopicState(NamedTuple):
    """One partition of a topic; -1 is the topic itself if it has none."""

    topic: str
    partition: int
    topic_id: str
    entries: int
    """Entries published, which is also the position of the next one."""
    first_position: int
    """The first entry that was not trimmed."""
    messages: int
    """Messages published, with those that are trimmed or deleted since."""
    bytes: int
    """Bytes of their files when they were published."""
    rate_in: float
    throughput_in: float
    subscriptions: int
    error: str | None
    error_kind: str | None
    """``stopped`` or ``set_aside``."""


class RoundState(NamedTuple):
    """A round of a broker. Counts and durations are None for a round that only takes the bundle over."""

    bundle: str
    round: int
    time: datetime
    broker_id: str
    epoch: int
    is_snapshot: bool
    published: int | None
    """Entries numbered."""
    requests: int | None
    delivered: int | None
    """Messages."""
    redelivered: int | None
    acknowledged: int | None
    dead: int | None
    returned: int | None
    """Entries given back, or left by a consumer that went away."""
    number_ms: float | None
    """How long the round numbered what was published,"""
    requests_ms: float | None
    """executed requests and what was due,"""
    gather_ms: float | None
    """gathered its entries,"""
    plan_ms: float | None
    """and planned, and took the result into memory."""
    write_before_ms: float | None
    """How long the same broker's round before took to write, since a round cannot state its own."""


class BrokerState(NamedTuple):
    """The broker of a bundle: the holder of its lease, or else the broker of its latest round."""

    bundle: str
    broker_id: str | None
    host: str | None
    pid: int | None
    is_serving: bool
    """Does it hold the lease?"""
    epoch: int
    """Counts the brokers that took the bundle."""
    round: int
    round_time: datetime | None


class RootState(NamedTuple):
    """A root at one time. Subscriptions and totals have the worst backlog first."""

    time: datetime
    topics: tuple[TopicState, ...]
    """By name and partition."""
    subscriptions: tuple[SubscriptionState, ...]
    """On each topic partition."""
    totals: tuple[SubscriptionState, ...]
    """Each subscription of a topic once, summed over its partitions."""
    rounds: tuple[RoundState, ...]
    """Those since the look before, of each bundle at most a thousand, in order; at first those since the snapshot."""
    brokers: tuple[BrokerState, ...]
