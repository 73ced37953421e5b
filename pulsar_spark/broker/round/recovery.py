"""Runs a failed round again without its cause.

The bundle is read again. A named unit is set aside (see isolation). Otherwise trials, which do not commit, find the
shortest failing prefix of requests, whose last one is the cause. If the round fails without requests, it is tried again
after growing pauses. Errors of the machine are raised after the reload; a fence, or a corrupt table of its own, stops
the broker.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import BundleClock
from pulsar_spark.broker.requests.drafts import RoundResult
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.round.isolation import Broken, PlannerFailed, is_fault, of_request
from pulsar_spark.errors import BrokerFenced, CorruptState
from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.storage.cursor_ledger.set_aside import SetAside
from pulsar_spark.storage.store.faults import UnclearWrite

PAUSES = MultiplierRedeliveryBackoff(min_delay_ms=1_000, max_delay_ms=60_000)
ON_PURPOSE = (BrokerFenced, CorruptState)
"""These stop the broker: it was replaced, or its own tables are corrupt. So does a missing Spark."""

log = logging.getLogger(__name__)


class Attempts(Protocol):
    """What recovery asks of rounds: to run one, and to read the bundle again."""

    bundle: Bundle
    clock: BundleClock

    def attempt(
        self, requests: list[Request], requests_version: int, broken: Mapping[str, SetAside], *, is_trial: bool = False
    ) -> RoundResult: ...

    def reload(self, leases: Mapping[str, int]) -> None: ...


class Recovery:
    """The recovery of one :class:`~pulsar_spark.broker.round.rounds.Rounds`."""

    def __init__(self, rounds: Attempts, clock: Callable[[], float] = time.monotonic):
        self._rounds, self._clock = rounds, clock
        self._failures, self._quiet_until = 0, 0.0
        self._is_reload_due = self._is_unclear = False
        self._leases: dict[str, int] = {}

    def run(self, requests: list[Request], requests_version: int, unreadable: Sequence[SetAside]) -> RoundResult:
        """See :meth:`Rounds.run`. Does nothing during a pause."""
        if self.is_waiting:
            return RoundResult(False)
        try:
            return self._run(requests, requests_version, unreadable)
        except ON_PURPOSE as stopping:
            self._is_reload_due = True
            if not isinstance(stopping, BrokerFenced) or not self._is_unclear:
                raise
            self._is_unclear = False  # the round in between may be our own; the reload shows it
            return self.run(requests, requests_version, unreadable)
        except Exception as failure:  # no request is to blame: it is logged with its traceback, and the round waits
            self._is_reload_due = True
            self._is_unclear = self._is_unclear or isinstance(failure, UnclearWrite)
            if is_fault(failure):
                raise
            self._wait(failure)
            return RoundResult(False)

    @property
    def is_waiting(self) -> bool:
        return self._clock() < self._quiet_until

    def _run(self, requests: list[Request], requests_version: int, unreadable: Sequence[SetAside]) -> RoundResult:
        rounds, broken = self._rounds, {}
        if self._is_reload_due:
            self._reload_if_due()
            done = rounds.bundle.requests_version  # a commit may have succeeded without confirmation
            requests = [
                request for request in requests if request.requests_version is None or request.requests_version > done
            ]
            unreadable = [entry for entry in unreadable if entry.requests_version > done]
        for entry in unreadable:
            self._set_aside(entry, broken)
        before = rounds.bundle.round
        while True:
            self._leases = dict(rounds.bundle.leases)
            try:
                result = rounds.attempt(requests, requests_version, broken)
                self._failures = 0
                return result
            except ON_PURPOSE:
                raise
            except Exception as failure:  # isolated: any error is logged with its traceback and recorded
                self._is_reload_due = True
                if is_fault(failure):
                    raise
                self._find_out(failure, requests, requests_version, broken)
                if rounds.bundle.round > before:
                    return RoundResult(True)

    def _find_out(
        self, failure: Exception, requests: list[Request], requests_version: int, broken: dict[str, SetAside]
    ) -> None:
        """Add the cause to *broken*; raises *failure* without one."""
        self._reload_if_due()
        if isinstance(failure, PlannerFailed):
            raise failure
        causes = (
            failure.causes
            if isinstance(failure, Broken)
            else self._narrowed(failure, requests, requests_version, broken)
        )
        entries = [(unit.set_aside(cause, self._rounds.bundle.now.wall), cause) for unit, cause in causes]
        entries = [(entry, cause) for entry, cause in entries if entry.id not in broken]
        for entry, cause in entries:
            self._set_aside(entry, broken, cause)
        if not entries:
            raise failure

    def _narrowed(
        self, failure: Exception, requests: list[Request], requests_version: int, broken: dict[str, SetAside]
    ) -> list:
        """The request that causes a failure without a unit, if any."""
        at_most, passing = len(requests), 0
        if not requests or self._trial(requests[:0], requests_version, broken) is not None:
            return []
        while at_most - passing > 1:
            middle = (passing + at_most) // 2
            failed = self._trial(requests[:middle], requests_version, broken)
            if isinstance(failed, Broken):
                return failed.causes
            passing, at_most = (passing, middle) if failed else (middle, at_most)
        return [(of_request(requests[at_most - 1]), failure)]

    def _trial(self, requests: list[Request], requests_version: int, broken: dict[str, SetAside]) -> Exception | None:
        """The error of a trial over these requests, or None."""
        try:
            self._rounds.attempt(requests, requests_version, broken, is_trial=True)
        except Exception as failure:  # the error is the answer
            if is_fault(failure):
                raise
            return failure
        finally:
            self._is_reload_due = True
            self._reload_if_due()
        return None

    def _set_aside(self, entry: SetAside, broken: dict[str, SetAside], cause: Exception | None = None) -> None:
        if entry.round_time is None:
            entry = entry._replace(round_time=self._rounds.clock.look().wall)
        broken[entry.id] = entry
        log.error(
            "%s is set aside (%s: %s); all other work continues; see 'pulsar-spark set-aside list'",
            entry.id,
            entry.error,
            entry.text[:1000],
            exc_info=cause,
        )

    def _reload_if_due(self) -> None:
        if self._is_reload_due:
            self._rounds.reload(self._leases)
            self._is_reload_due = False

    def _wait(self, failure: Exception) -> None:
        if not self._failures:
            log.error(
                "every round fails; the broker tries again after pauses of up to %g s",
                PAUSES.max_delay_ms / 1000,
                exc_info=failure,
            )
        self._quiet_until = self._clock() + PAUSES.delay_ms(self._failures) / 1000
        self._failures += 1
