"""The tables that housekeeping keeps, what each needs, and how long things stay.

Policies of a topic or namespace apply to its table. The broker's tables keep rows as long as any topic.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from pulsar_spark.protocol.policies.policies import (
    BROKER,
    HISTORY_SECONDS,
    HOUSEKEEPING,
    TIME_TRAVEL_SECONDS,
    default_number,
    policy_number,
    policy_text,
)
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.cursor_ledger.cursor_ledger import LatestRows
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.upkeep.housekeeping import Needs, needs_of, needs_of_topic
from pulsar_spark.table_specs import BROKER_TABLES, LATER_TABLES

NEEDED = ("topic", "policy", "waiting_request")


OWN_SECONDS = 60 * 60
"""How long older versions of the broker's tables stay: longer than any reader or lease needs."""
OWN_VERSIONS = 400
"""This many versions are enough, but at least five minutes (see retention)."""


class Kept(NamedTuple):
    """A table to keep: its needs, how long things stay, whether its property says so, and how many versions suffice."""

    name: str
    path: AnyPath
    needs: Callable[[], Needs]
    history_seconds: int
    time_travel_seconds: int
    promises: bool = False
    versions: int | None = None


def kept_tables(layout: Layout, latest: LatestRows) -> Iterator[Kept]:
    """The root's tables to keep, the broker's first; some may not exist."""
    topics = {topic_id: row["topic"] for (topic_id, _), row in latest.topics.items()}
    number = partial(_number, latest)
    seconds = {name: (number(name, HISTORY_SECONDS), number(name, TIME_TRAVEL_SECONDS)) for name in topics.values()}
    history = max((of_history for of_history, _ in seconds.values()), default=default_number(HISTORY_SECONDS))
    value = latest.policies.get((BROKER, TIME_TRAVEL_SECONDS))
    own, versions = (OWN_SECONDS, OWN_VERSIONS) if value is None else (policy_number(TIME_TRAVEL_SECONDS, value), None)
    for spec in (*BROKER_TABLES, *LATER_TABLES):
        path = layout.broker_table(spec.name)
        yield Kept(spec.name, path, partial(needs_of, path, spec.name, latest), history, own, True, versions)
    for topic_id, name in topics.items():
        path = layout.topic(parse_topic_name(name))
        if _number(latest, name, HOUSEKEEPING):
            yield Kept(name, path, partial(needs_of_topic, path, topic_id, latest), *seconds[name])


def _number(latest: LatestRows, topic: str, name: str) -> int:
    return policy_number(name, policy_text(latest.policies, topic, name))
