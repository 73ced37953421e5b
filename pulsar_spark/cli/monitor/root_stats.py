"""``pulsar-spark stats`` without a topic: the whole root."""

import shutil
import sys
from typing import Any

import typer

from pulsar_spark.cli.common import print_json
from pulsar_spark.cli.monitor.table import duration, lines
from pulsar_spark.link.requester import require_root
from pulsar_spark.protocol.delays.instants import from_micros
from pulsar_spark.storage import clock
from pulsar_spark.storage.layout import Layout
from pulsar_spark.views.overview import BrokerState, ConsumerState, Overview, RootState, SubscriptionState


def overview_of(root: str) -> Overview:
    """:class:`NotARoot` if the folder is none."""
    layout = Layout(root)
    require_root(layout)
    return Overview(layout)


def look(overview: Overview) -> RootState:
    """The root at the time of this process's clock."""
    return overview.look(from_micros(clock.now_micros()))


def print_root(root: str, as_json: bool) -> None:
    found = look(overview_of(root))
    if as_json:
        return print_json(as_object(found))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    typer.echo("\n".join([*summary(found), *(lines(found.totals, width) if found.totals else ["no subscriptions"])]))


def summary(found: RootState) -> list[str]:
    """What the root has, and a line for each bundle's broker."""
    topics = len({state.topic for state in found.topics})
    backlog = sum(state.backlog for state in found.totals)
    of_root = f"topics: {topics:,}, subscriptions: {len(found.totals):,}, backlog: {backlog:,}"
    return [of_root, *(_of_broker(broker, found) for broker in found.brokers)]


def _of_broker(broker: BrokerState, found: RootState) -> str:
    bundle = f"bundle {broker.bundle}: " if len(found.brokers) > 1 else ""
    who = f"{broker.broker_id} serves" if broker.is_serving else "no broker serves"
    if broker.round_time is None:
        return f"{bundle}{who}"
    ago = duration(max((found.time - broker.round_time).total_seconds(), 0.0))
    return f"{bundle}{who}, round {broker.round:,} was {ago} ago"


_OF_SUBSCRIPTION = {
    "topic": "topic",
    "subscription": "subscription",
    "type": "subscription_type",
    "msgBacklog": "backlog",
    "msgBacklogNoDelayed": "backlog_no_delayed",
    "msgDelayed": "delayed",
    "backlogAgeSeconds": "backlog_age_seconds",
    "unackedMessages": "unacked",
    "oldestUnackedSeconds": "oldest_unacked_seconds",
    "msgRateIn": "rate_in",
    "msgRateOut": "rate_out",
    "msgRateRedeliver": "rate_redelivered",
    "msgOutCounter": "delivered",
    "msgRedeliverCounter": "redelivered",
    "msgAckCounter": "acknowledged",
    "msgDeadCounter": "dead",
    "waitingLetters": "waiting_letters",
    "letterlessMessages": "letterless",
    "blocked": "blocked",
    "error": "error",
}
_OF_CONSUMER = {
    "consumerName": "consumer_name",
    "availablePermits": "permits",
    "unackedMessages": "unacked",
    "oldestUnackedSeconds": "oldest_unacked_seconds",
    "msgOutCounter": "delivered",
    "msgRedeliverCounter": "redelivered",
    "msgRateOut": "rate_out",
    "blockedConsumerOnUnackedMsgs": "is_blocked",
}
_OF_BROKER = {
    "bundle": "bundle",
    "brokerId": "broker_id",
    "host": "host",
    "pid": "pid",
    "serves": "is_serving",
    "round": "round",
}


def as_object(found: RootState) -> dict[str, Any]:
    """The root for JSON: brokers, and subscriptions with the worst backlog first."""
    return {
        "time": found.time.isoformat(),
        "brokers": [_named(broker, _OF_BROKER) for broker in found.brokers],
        "subscriptions": [
            {
                **_named(state, _OF_SUBSCRIPTION),
                "consumers": [_named(consumer, _OF_CONSUMER) for consumer in state.consumers],
            }
            for state in found.totals
        ],
    }


def _named(value: SubscriptionState | ConsumerState | BrokerState, names: dict[str, str]) -> dict[str, Any]:
    return {name: getattr(value, field) for name, field in names.items()}
