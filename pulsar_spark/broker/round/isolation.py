"""Pin an unexpected exception on the request, topic or subscription that was being processed.

:func:`isolated` raises it as :class:`Broken`; recovery sets this unit aside. Refusals, a fence, faults of the machine
and a missing Spark pass through.
"""

import logging
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError

from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.errors import BrokerFenced, InvalidRequest
from pulsar_spark.storage.cursor_ledger.set_aside import REQUEST, SUBSCRIPTION, TOPIC, SetAside
from pulsar_spark.storage.store.faults import is_fault_of_disk

log = logging.getLogger(__name__)


def is_spark_gone(failure: BaseException) -> bool:
    """Is Spark unreachable? Errors from a living JVM contain a trace."""
    if isinstance(failure, Py4JError):
        return not isinstance(failure, Py4JJavaError) and "Trace:" not in str(failure)
    return isinstance(failure, ConnectionError)


def is_fault(failure: BaseException) -> bool:
    """Is the disk, or a missing Spark, the cause?"""
    return is_spark_gone(failure) or is_fault_of_disk(failure)


class Unit(NamedTuple):
    """What can be set aside, by the columns that name it."""

    status: str
    named: dict

    @property
    def id(self) -> str:
        """The id of its entry, once it is set aside."""
        return SetAside(self.status, "", "", **self.named).id

    def set_aside(self, cause: BaseException, now: int) -> SetAside:
        """Its entry, with *cause* and time (microseconds, the machine's clock)."""
        return SetAside(self.status, type(cause).__name__, str(cause), now, **self.named)


def of_request(request: Request) -> Unit:
    return Unit(
        REQUEST,
        dict(
            request_id=request.request_id,
            requests_version=request.requests_version,
            first=request.row,
            topic=request.topic,
            partition=request.partition,
            subscription=request.subscription,
        ),
    )


def of_topic(state) -> Unit:
    return Unit(TOPIC, dict(topic=str(state.topic.name), topic_id=state.topic.topic_id))


def of_cursor(cursor: Cursor) -> Unit:
    return Unit(SUBSCRIPTION, dict(topic=cursor.topic, **cursor.key._asdict()))


class Broken(Exception):
    """Units that cannot be processed, with their causes."""

    def __init__(self, causes: list[tuple[Unit, Exception]]):
        super().__init__(", ".join(f"{unit.status} {unit.named}: {cause!r}" for unit, cause in causes))
        self.causes = causes


class PlannerFailed(Exception):
    """Even empty work cannot be planned, so no request is the cause."""


class isolated:
    """Pin an unexpected exception on *unit*; the innermost counts. A class, because a generator is slow."""

    def __init__(self, unit: Unit):
        self._unit = unit

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, cause: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(cause, Exception) or isinstance(cause, (InvalidRequest, BrokerFenced, Broken)):
            return
        if not is_fault(cause):  # any error is logged with its traceback and recorded
            raise Broken([(self._unit, cause)]) from cause


def plan_isolated(plan: Callable, work) -> list:
    """The plan of *work*. If it fails, though a plan of nothing succeeds, cursors are planned one by one;
    :class:`Broken` names those that fail."""
    try:
        return plan(work)
    except Exception as failure:
        if is_fault(failure):
            raise
        try:
            plan(work.only(()))
        except Exception as nothing_planned:
            if is_fault(nothing_planned):
                raise
            raise PlannerFailed(str(nothing_planned)) from failure
        log.warning("the plan of %d cursors failed (%r): each cursor is now planned alone", len(work.cursors), failure)
        planned, causes = [], []
        for number, changes in enumerate(work.cursors):
            try:
                planned += plan(work.only((number,)))
            except Exception as cause:  # any error is logged with its traceback and recorded
                if is_fault(cause):
                    raise
                causes.append((of_cursor(changes.cursor), cause))
        if causes:
            raise Broken(causes) from failure
        return planned
