"""All metrics: their names, types and texts, and the value of each. The names that begin with ``pulsar_spark_`` are
ours, all others Pulsar's."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from pulsar_spark.metrics.exposition import COUNTER, GAUGE, Metric
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.views.overview import SubscriptionState, TopicState
from pulsar_spark.views.overview.values import BLOCKED, UNACKED_LIMIT

T = TypeVar("T")
CLUSTER = "standalone"
"""The label ``cluster``; Pulsar's name for a cluster of one machine."""
OTHERS = "__others__"
_SUMMED = f"Beyond the number of --metrics-subscriptions, the sum of the others stands under {OTHERS}."
_LARGEST = f"Beyond the number of --metrics-subscriptions, the largest of the others stands under {OTHERS}."
_ALONE = "Only of the subscriptions and topics that have labels of their own."


class TopicNumbers(NamedTuple):
    """A partition of a topic, or the topic itself, with what its subscriptions add up to."""

    topic: TopicState
    backlog: int
    backlog_age_seconds: float
    consumers: int
    rate_out: float


class Of(NamedTuple, Generic[T]):
    """A metric and its value; ``fold`` makes one value of several."""

    metric: Metric
    value: Callable[[T], float]
    fold: Callable[[list[float]], float] | None = sum


def _largest(values: list[float]) -> float:
    return max(values, default=0)


OF_TOPICS: tuple[Of[TopicNumbers], ...] = (
    Of(Metric("pulsar_subscriptions_count", GAUGE, f"Subscriptions. {_SUMMED}"), lambda each: each.topic.subscriptions),
    Of(Metric("pulsar_consumers_count", GAUGE, f"Connected consumers. {_SUMMED}"), lambda each: each.consumers),
    Of(Metric("pulsar_rate_in", GAUGE, f"Messages published a second. {_SUMMED}"), lambda each: each.topic.rate_in),
    Of(Metric("pulsar_rate_out", GAUGE, f"Messages delivered a second. {_SUMMED}"), lambda each: each.rate_out),
    Of(
        Metric("pulsar_throughput_in", GAUGE, f"Bytes published a second. {_SUMMED}"),
        lambda each: each.topic.throughput_in,
    ),
    Of(
        Metric("pulsar_msg_backlog", GAUGE, f"Entries that are not acknowledged, of all subscriptions. {_SUMMED}"),
        lambda each: each.backlog,
    ),
    Of(
        Metric(
            "pulsar_storage_backlog_age_seconds",
            GAUGE,
            f"Time since the oldest entry of a backlog was published that is not delayed; 0 for none. {_LARGEST}",
        ),
        lambda each: each.backlog_age_seconds,
        _largest,
    ),
    Of(
        Metric("pulsar_in_messages_total", COUNTER, f"Messages published. {_ALONE}"),
        lambda each: each.topic.messages,
        None,
    ),
    Of(
        Metric("pulsar_in_bytes_total", COUNTER, f"Bytes of the files with published messages. {_ALONE}"),
        lambda each: each.topic.bytes,
        None,
    ),
)
OF_SUBSCRIPTIONS: tuple[Of[SubscriptionState], ...] = (
    Of(
        Metric("pulsar_subscription_back_log", GAUGE, f"Entries that are not acknowledged. {_SUMMED}"),
        lambda each: each.backlog,
    ),
    Of(
        Metric("pulsar_subscription_back_log_no_delayed", GAUGE, f"The backlog without delayed entries. {_SUMMED}"),
        lambda each: each.backlog_no_delayed,
    ),
    Of(
        Metric(
            "pulsar_subscription_storage_backlog_age_seconds",
            GAUGE,
            f"Time since the oldest entry of the backlog was published that is not delayed; 0 for none. {_LARGEST}",
        ),
        lambda each: each.backlog_age_seconds or 0.0,
        _largest,
    ),
    Of(
        Metric("pulsar_subscription_delayed", GAUGE, f"Entries that wait for their deliver time. {_SUMMED}"),
        lambda each: each.delayed,
    ),
    Of(
        Metric("pulsar_subscription_unacked_messages", GAUGE, f"Messages delivered, not acknowledged. {_SUMMED}"),
        lambda each: each.unacked,
    ),
    Of(
        Metric(
            "pulsar_subscription_blocked_on_unacked_messages",
            GAUGE,
            f"1 if a limit of unacknowledged messages stops deliveries, else 0. {_SUMMED}",
        ),
        lambda each: each.blocked == UNACKED_LIMIT,
    ),
    Of(
        Metric("pulsar_subscription_consumers_count", GAUGE, f"Connected consumers. {_SUMMED}"),
        lambda each: len(each.consumers),
    ),
    Of(
        Metric("pulsar_subscription_msg_rate_out", GAUGE, f"Messages delivered a second. {_SUMMED}"),
        lambda each: each.rate_out,
    ),
    Of(
        Metric("pulsar_subscription_msg_rate_redeliver", GAUGE, f"Messages delivered again a second. {_SUMMED}"),
        lambda each: each.rate_redelivered,
    ),
    Of(
        Metric("pulsar_subscription_msg_ack_rate", GAUGE, f"Messages acknowledged a second. {_SUMMED}"),
        lambda each: each.rate_acknowledged,
    ),
    Of(
        Metric("pulsar_out_messages_total", COUNTER, f"Messages delivered. {_ALONE}"), lambda each: each.delivered, None
    ),
    Of(
        Metric("pulsar_spark_redelivered_messages_total", COUNTER, f"Messages delivered again. {_ALONE}"),
        lambda each: each.redelivered,
        None,
    ),
    Of(
        Metric("pulsar_spark_acknowledged_messages_total", COUNTER, f"Messages acknowledged. {_ALONE}"),
        lambda each: each.acknowledged,
        None,
    ),
    Of(
        Metric("pulsar_spark_dead_messages_total", COUNTER, f"Messages given back, or put off, too often. {_ALONE}"),
        lambda each: each.dead,
        None,
    ),
    Of(
        Metric("pulsar_spark_waiting_letters", GAUGE, f"Messages whose letter is not written yet. {_SUMMED}"),
        lambda each: each.waiting_letters,
    ),
)
BLOCKED_SUBSCRIPTIONS = Metric(
    "pulsar_spark_blocked_subscriptions",
    GAUGE,
    f"Subscriptions, counted on each partition, whose backlog is not delivered now, by reason: {', '.join(BLOCKED)}.",
)
TOPICS = Metric("pulsar_broker_topics_count", GAUGE, "Topics, each partition counted.")
SUBSCRIPTIONS = Metric("pulsar_broker_subscriptions_count", GAUGE, "Subscriptions, counted on each partition.")
CONSUMERS = Metric("pulsar_broker_consumers_count", GAUGE, "Connected consumers, counted on each partition.")
RATE_IN = Metric("pulsar_broker_rate_in", GAUGE, "Messages published a second.")
RATE_OUT = Metric("pulsar_broker_rate_out", GAUGE, "Messages delivered a second.")
BACKLOG = Metric("pulsar_broker_msg_backlog", GAUGE, "Entries that are not acknowledged, of all subscriptions.")
SERVES = Metric("pulsar_spark_broker_serves", GAUGE, "1 for each bundle of the root that has a broker, else 0.")
ROUNDS = Metric("pulsar_spark_rounds_total", COUNTER, "Rounds of a bundle, each a commit.")
LAST_ROUND = Metric(
    "pulsar_spark_last_round_timestamp_seconds", GAUGE, "When the last round of a bundle was, in Unix time."
)
ROUND_SECONDS = Metric(
    "pulsar_spark_round_seconds",
    "summary",
    "Time that rounds took in each step: number, requests, gather, plan, write. The first request counts "
    "rounds since the latest snapshot; at most a thousand count between two requests.",
)
LOOK_SECONDS = Metric("pulsar_spark_look_seconds", GAUGE, "Time that it took to read what is shown here.")
ALL = (
    *(of.metric for of in OF_TOPICS),
    *(of.metric for of in OF_SUBSCRIPTIONS),
    *(BLOCKED_SUBSCRIPTIONS, TOPICS, SUBSCRIPTIONS, CONSUMERS, RATE_IN, RATE_OUT, BACKLOG, SERVES, ROUNDS, LAST_ROUND),
    *(ROUND_SECONDS, LOOK_SECONDS),
)


def names(topic: str, partition: int | None) -> dict[str, str]:
    """The labels of a topic partition, as Pulsar has them.

    >>> names("persistent://public/default/orders", 3)["topic"]
    'persistent://public/default/orders-partition-3'
    """
    name = parse_topic_name(topic)
    whole = str(name if partition is None else name.partition(partition))
    return {"cluster": CLUSTER, "namespace": f"{name.tenant}/{name.namespace}", "topic": whole}
