"""Values of an overview, made by tests."""

from typing import Any

from pulsar_spark.views.overview import SubscriptionState

_DEFAULTS: dict[str, Any] = {name: 0 for name in SubscriptionState._fields} | {
    "topic": "persistent://public/default/orders",
    "partition": -1,
    "subscription": "billing",
    "subscription_type": None,
    "oldest_publish_time": None,
    "backlog_age_seconds": None,
    "oldest_unacked_seconds": None,
    "consumers": (),
    "blocked": None,
    "error": None,
}


def subscription_state(**fields: Any) -> SubscriptionState:
    return SubscriptionState(**{**_DEFAULTS, **fields})
