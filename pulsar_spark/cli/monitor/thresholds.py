"""Thresholds of a root's numbers, and what is found where they are reached."""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

from pulsar_spark.cli.common import on_one_line
from pulsar_spark.cli.monitor.table import short_topic
from pulsar_spark.cli.policies.delayed_delivery import milliseconds
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.views.overview import RootState, SubscriptionState


class Status(IntEnum):
    """The exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Measure(NamedTuple):
    """What a threshold is compared with."""

    name: str
    of: Callable[[SubscriptionState], float]
    number: Callable[[str, str], float]
    """Parses a threshold, given its option and its text."""
    text: str
    """A sentence with a value."""
    shown: Callable[[float], str] = "{:,.0f}".format
    unit: str = ""


def _count(option: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidConfiguration(f"{option} {text!r}: give a number such as 1000, or two: 1000,5000")
    return int(text)


BROKER = "broker"
MEASURES = (
    Measure(
        "backlog_age",
        lambda state: state.backlog_age_seconds or 0.0,
        lambda option, text: milliseconds(option, text) / 1000,
        "backlog age {}",
        shown_seconds,
        "s",
    ),
    Measure("unacked", lambda state: state.unacked, _count, "{} unacknowledged messages"),
    Measure("backlog", lambda state: state.backlog, _count, "backlog {}"),
)


class Threshold(NamedTuple):
    """Values from which on it is a warning, and critical; None for never."""

    measure: Measure
    warning: float | None
    critical: float | None

    def status(self, value: float) -> Status:
        if self.critical is not None and value >= self.critical:
            return Status.CRITICAL
        return Status.WARNING if self.warning is not None and value >= self.warning else Status.OK

    def text(self, value: float, status: Status) -> str:
        """What the value is, and the threshold that it reached."""
        limit = {Status.WARNING: self.warning, Status.CRITICAL: self.critical}.get(status)
        reached = "" if limit is None else f", {status.name.lower()} from {self.measure.shown(limit)}"
        return self.measure.text.format(self.measure.shown(value)) + reached


class Finding(NamedTuple):
    """The status of a subscription, or of the brokers, by one check."""

    check: str
    status: Status
    value: float
    text: str
    state: SubscriptionState | None = None


def threshold(measure: Measure, text: str) -> Threshold:
    """One value is the critical one; of two, the first is that of a warning, and either may be empty.

    >>> [threshold(MEASURES[2], text)[1:] for text in ("9", "5,9", "5,")]
    [(None, 9), (5, 9), (5, None)]
    """
    option, parts = f"--{measure.name.replace('_', '-')}", [part.strip() for part in text.split(",")]
    if len(parts) > 2 or not any(parts):
        raise InvalidConfiguration(f"{option} {text!r}: give one critical value, or a warning and a critical value")
    warning, critical = (measure.number(option, part) if part else None for part in (["", *parts])[-2:])
    if warning is not None and critical is not None and warning > critical:
        raise InvalidConfiguration(f"{option} {text!r}: the warning value is above the critical one: swap them")
    return Threshold(measure, warning, critical)


def findings(states: Iterable[SubscriptionState], thresholds: Iterable[Threshold]) -> list[Finding]:
    """One of each subscription and threshold, the worst first."""
    found = []
    for state in states:
        of = f"{on_one_line(short_topic(state.topic))} {on_one_line(state.subscription)}"
        for each in thresholds:
            value = each.measure.of(state)
            status = each.status(value)
            found.append(Finding(each.measure.name, status, value, f"{of}: {each.text(value, status)}", state))
    return sorted(found, key=lambda each: -each.status)


def of_brokers(layout: Layout, found: RootState) -> Finding:
    """Critical if some bundle has no broker; in an object store, waits for a sign of life of each."""
    serving = {broker.bundle for broker in found.brokers if broker.is_serving}
    sure = {
        each.bundle for each in layouts_of(layout) if each.bundle in serving and BundleLease(each, "").sure_holder()
    }
    missing = [broker.bundle for broker in found.brokers if broker.bundle not in sure]
    if not missing:
        return Finding(BROKER, Status.OK, 1, "a broker serves")
    which = f"bundles {', '.join(missing)}" if len(found.brokers) > 1 else "the root"
    return Finding(BROKER, Status.CRITICAL, 0, f"no broker serves {which}")


def worst(found: list[Finding]) -> Status:
    return max((each.status for each in found), default=Status.OK)
