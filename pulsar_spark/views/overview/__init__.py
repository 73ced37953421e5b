"""A whole root at a glance, from the rows that rounds committed: topics, subscriptions, consumers, rounds, brokers."""

from pulsar_spark.views.overview.overview import Overview
from pulsar_spark.views.overview.values import (
    BrokerState,
    ConsumerState,
    RootState,
    RoundState,
    SubscriptionState,
    TopicState,
)

__all__ = ["BrokerState", "ConsumerState", "Overview", "RootState", "RoundState", "SubscriptionState", "TopicState"]
