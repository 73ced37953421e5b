"""What is broken stops itself: an exception nobody expected is pinned on the request, topic or subscription that was
being worked on.

:func:`isolated` names the unit. What escapes from it is raised as :class:`Broken`; the round is abandoned and the
bundle read again from its tables, so that nothing half done stays in memory, the unit is set aside, and the round is
run again without it (see rounds). The plan is made for all cursors at once: where that fails, each is planned by
itself, and those that fail alone are the broken ones. Refusals and a bundle that was taken over are on purpose, and
what the machine lacks, or Spark that is gone, is no unit's fault (:func:`is_fault`): these pass through as they are.
"""

import logging
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError

from pulsar_spark.broker.drafts import Request
from pulsar_spark.broker.state import Cursor
from pulsar_spark.errors import BrokerFenced, InvalidRequest
from pulsar_spark.storage.faults import is_fault_of_disk
from pulsar_spark.storage.set_aside import REQUEST, SUBSCRIPTION, TOPIC, SetAside

log = logging.getLogger(__name__)


def is_spark_gone(failure: BaseException) -> bool:
    """Does *failure* say that there is no Spark to talk to any more, rather than that Spark has refused or failed at
    something? Only what comes from a JVM that is there has a trace in it."""
    if isinstance(failure, Py4JError):
        return not isinstance(failure, Py4JJavaError) and "Trace:" not in str(failure)
    return isinstance(failure, ConnectionError)


def is_fault(failure: BaseException) -> bool:
    """Is it no request's and no row's, but the disk's, or Spark's that is gone?"""
    return is_spark_gone(failure) or is_fault_of_disk(failure)


class Unit(NamedTuple):
    """What can be set aside: the columns of its row that name it."""

    status: str
    named: dict

    def set_aside(self, cause: BaseException, now: int) -> SetAside:
        """Its entry, *cause* and the time of it (microseconds, the machine's clock) said."""
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
    """The unit of a topic's state (bundle.TopicState)."""
    return Unit(TOPIC, dict(topic=str(state.topic.name), topic_id=state.topic.topic_id))


def of_cursor(cursor: Cursor) -> Unit:
    return Unit(SUBSCRIPTION, dict(topic=cursor.topic, **cursor.key._asdict()))


class Broken(Exception):
    """Units that cannot be worked on, each with its cause."""

    def __init__(self, causes: list[tuple[Unit, Exception]]):
        super().__init__(", ".join(f"{unit.status} {unit.named}: {cause!r}" for unit, cause in causes))
        self.causes = causes


class PlannerFailed(Exception):
    """Not even nothing can be planned: it is no request's and no subscription's fault."""


class isolated:
    """A context that pins an exception that was not raised on purpose on *unit*; the innermost unit is to blame. No
    generator, because every request is taken in one."""

    def __init__(self, unit: Unit):
        self._unit = unit

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, cause: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(cause, Exception) or isinstance(cause, (InvalidRequest, BrokerFenced, Broken)):
            return
        if not is_fault(cause):  # whatever it is: it is logged with its traceback and recorded
            raise Broken([(self._unit, cause)]) from cause


def plan_isolated(plan: Callable, work) -> list:
    """The plan of *work* (work.Work). Where it fails, though one of nothing succeeds, cursors are planned one by one;
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
        for number, asked in enumerate(work.cursors):
            try:
                planned += plan(work.only((number,)))
            except Exception as cause:  # whatever it is: it is logged with its traceback and recorded
                if is_fault(cause):
                    raise
                causes.append((of_cursor(asked.cursor), cause))
        if causes:
            raise Broken(causes) from failure
        return planned
