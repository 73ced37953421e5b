"""Suggestions in errors about unknown names."""

import difflib
from collections.abc import Iterable

from pulsar_spark.errors import SubscriptionNotFound

MOST_COMPARED = 10_000
"""The most names compared, so that errors stay quick in a large root."""
_MOST_NAMED = 3


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """The *known* names similar to *name*, ignoring case, closest first.

    >>> close_names("fligths", ["flights", "orders", "Flight"])
    ['flights', 'Flight']
    """
    plain: dict[str, list[str]] = {}
    for each in sorted(known)[:MOST_COMPARED]:
        plain.setdefault(each.casefold(), []).append(each)
    found = difflib.get_close_matches(name.casefold(), list(plain), _MOST_NAMED)
    return [each for match in found for each in plain[match]][:_MOST_NAMED]


def did_you_mean(names: Iterable[str]) -> str:
    """The end of an error that suggests *names*; empty without any.

    >>> did_you_mean(["flights", "flight"]), did_you_mean([])
    ("; did you mean 'flights' or 'flight'?", '')
    """
    listed = " or ".join(map(repr, names))
    return f"; did you mean {listed}?" if listed else ""


def no_subscription(topic: str, subscription: str, known: Iterable[str]) -> SubscriptionNotFound:
    """The error for a missing *subscription* of *topic*, whose *known* subscriptions are similar names to suggest.

    >>> str(no_subscription("persistent://public/default/t", "biling", ["billing"])).partition("list ")[2]
    "t' shows; did you mean 'billing'?"
    """
    short = topic.removeprefix("persistent://").removeprefix("public/default/")
    return SubscriptionNotFound(
        f"topic {topic!r} has no subscription {subscription!r}: create it, subscribe, or give one that 'pulsar-spark "
        f"subscriptions list {short}' shows{did_you_mean(close_names(subscription, known))}"
    )
