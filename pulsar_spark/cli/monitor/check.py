"""``pulsar-spark check``: thresholds for schedulers, Nagios and probes."""

from enum import StrEnum
from typing import Annotated

import typer

from pulsar_spark.cli.common import TOPIC_ARGUMENT, Json, Root, on_one_line, print_json
from pulsar_spark.cli.monitor.root_stats import look, overview_of
from pulsar_spark.cli.monitor.thresholds import (
    BROKER,
    MEASURES,
    Finding,
    Status,
    Threshold,
    findings,
    of_brokers,
    threshold,
    worst,
)
from pulsar_spark.errors import InvalidConfiguration, SubscriptionNotFound
from pulsar_spark.metrics.exposition import GAUGE, Metric, exposed, labels
from pulsar_spark.storage.delta.scan import LOOK_FAILED
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.views.overview import RootState, SubscriptionState


class CheckFormat(StrEnum):
    text = "text"
    json = "json"
    nagios = "nagios"
    prometheus = "prometheus"


_OPTION = "Critical from this value on; with two values, a warning from the first on, as in {}."
_STATUS = Metric("pulsar_spark_check_status", GAUGE, "Status of a check: 0 ok, 1 warning, 2 critical, 3 unknown.")
_VALUE = Metric("pulsar_spark_check_value", GAUGE, "The worst value that a check met.")


def check(
    root: Root,
    topic: Annotated[str | None, TOPIC_ARGUMENT] = None,
    subscription: Annotated[
        str | None, typer.Option("--subscription", "-s", help="Check this subscription alone.")
    ] = None,
    backlog_age: Annotated[str | None, typer.Option("--backlog-age", help=_OPTION.format("5m,1h"))] = None,
    unacked: Annotated[str | None, typer.Option("--unacked", help=_OPTION.format("1000,5000"))] = None,
    backlog: Annotated[str | None, typer.Option("--backlog", help=_OPTION.format("1000,5000"))] = None,
    is_broker: Annotated[
        bool, typer.Option("--broker", help="Critical if a bundle has no broker; takes up to 10 s in an object store.")
    ] = False,
    format: Annotated[CheckFormat, typer.Option("--format", help="How to print the result.")] = CheckFormat.text,
    as_json: Json = False,
):
    """Compare the root's subscriptions, or those of a topic, with thresholds. Exit code 0: ok. 1: warning. 2: critical.
    3: the root, the topic or the subscription cannot be checked."""
    given = dict(zip(MEASURES, (backlog_age, unacked, backlog)))
    thresholds, states, found = [], [], []
    try:
        thresholds = [threshold(measure, text) for measure, text in given.items() if text is not None]
        if not thresholds and not is_broker:
            raise InvalidConfiguration("nothing to check: give --backlog-age, --unacked, --backlog or --broker")
        seen = look(overview_of(root))
        found = [of_brokers(Layout(root), seen)] if is_broker else []
        states = chosen(Layout(root), seen, topic, subscription)
        found += findings(states, thresholds)
    except LOOK_FAILED as error:
        text = on_one_line(f"{type(error).__name__}: {error}")
        names = [each.measure.name for each in thresholds] + [BROKER] * is_broker
        found = [Finding(name, Status.UNKNOWN, 0, text) for name in names or ["check"]]
    found.sort(key=lambda each: -each.status)
    shown = CheckFormat.json if as_json else format
    if shown is CheckFormat.json:
        print_json(_as_object(found, len(states)))
    else:
        write = {CheckFormat.text: _text, CheckFormat.nagios: _nagios, CheckFormat.prometheus: _prometheus}[shown]
        typer.echo(write(found, thresholds, len(states)), nl=shown is not CheckFormat.prometheus)
    raise typer.Exit(worst(found))


def chosen(layout: Layout, found: RootState, topic: str | None, subscription: str | None) -> list[SubscriptionState]:
    """The subscriptions that are checked; :class:`TopicNotFound` or :class:`SubscriptionNotFound` for none."""
    states = [*found.totals]
    if topic is not None:
        name = str(read_topic(layout, topic).name)
        states = [state for state in states if state.topic == name]
    if subscription is not None:
        states = [state for state in states if state.subscription == subscription]
        if not states:
            raise SubscriptionNotFound(f"subscription {subscription!r} does not exist there: check the name")
    return states


def _text(found: list[Finding], thresholds: list[Threshold], checked: int) -> str:
    bad = [each for each in found if each.status]
    if not bad:
        return f"OK {checked:,} subscriptions checked" if thresholds else f"OK {found[0].text}"
    return "\n".join(dict.fromkeys(f"{each.status.name} {each.text}" for each in bad))


def _nagios(found: list[Finding], thresholds: list[Threshold], checked: int) -> str:
    """A line of text, then for each threshold its worst value: ``'name'=value;warning;critical``."""
    bad = [*dict.fromkeys(each.text for each in found if each.status)]
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    text = (bad[0] + more if bad else f"{checked:,} subscriptions checked").replace("|", "/")
    values = []
    for each in thresholds:
        value = max((one.value for one in found if one.check == each.measure.name), default=0)
        limits = ";".join("" if limit is None else f"{limit:g}" for limit in each[1:])
        values.append(f"{each.measure.name}={value:g}{each.measure.unit};{limits}")
    return f"PULSAR {worst(found).name} - {text}" + (f" | {' '.join(values)}" if values else "")


def _prometheus(found: list[Finding], thresholds: list[Threshold], checked: int) -> str:
    worst_of: dict[str, Finding] = {}
    for each in sorted(found, key=lambda each: (-each.status, -each.value)):
        worst_of.setdefault(each.check, each)
    statuses = [(labels(check=name), each.status) for name, each in worst_of.items()]
    values = [(labels(check=name, **_names(each)), each.value) for name, each in worst_of.items()]
    return exposed(_STATUS, statuses) + exposed(_VALUE, values)


def _names(finding: Finding) -> dict[str, str]:
    if finding.state is None:
        return {}
    return {"topic": finding.state.topic, "subscription": finding.state.subscription}


def _as_object(found: list[Finding], checked: int) -> dict:
    return {
        "status": worst(found).name.lower(),
        "checked": checked,
        "findings": [
            {
                "check": each.check,
                "status": each.status.name.lower(),
                "value": each.value,
                **_names(each),
                "text": each.text,
            }
            for each in found
            if each.status
        ],
    }
