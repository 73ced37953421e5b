"""Run a failed round again without its cause.

The bundle is read again, and what the failure names is set aside (see isolation). If it names nothing, a round keeps
all requests for later. If that fails too, it is tried again after growing pauses. If it succeeds, the first half of the
requests is executed, or half of that, until one request alone makes a round fail.
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
    bundle: Bundle
    clock: BundleClock

    def attempt(
        self,
        requests: Sequence[Request],
        later: Sequence[Request],
        requests_version: int,
        broken: Mapping[str, SetAside],
    ) -> RoundResult: ...

    def reload(self, leases: Mapping[str, int]) -> None: ...


class Recovery:
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
    def is_reload_due(self) -> bool:
        """Whether memory may have what was never committed."""
        return self._is_reload_due

    @property
    def is_waiting(self) -> bool:
        return self._clock() < self._quiet_until

    def _run(self, requests: list[Request], requests_version: int, unreadable: Sequence[SetAside]) -> RoundResult:
        rounds = self._rounds
        broken: dict[str, SetAside] = {}
        if self._is_reload_due:
            self._reload()
            done = rounds.bundle.requests_version  # a commit may have succeeded without confirmation
            requests = [
                request for request in requests if request.requests_version is None or request.requests_version > done
            ]
            unreadable = [entry for entry in unreadable if (entry.requests_version or 0) > done]
        for entry in unreadable:
            self._set_aside(entry, broken)
        most: int | None = None  # all at once, until that fails
        failing, is_sound, cause = 0, False, Exception()
        while True:
            self._leases, before = dict(rounds.bundle.leases), rounds.bundle.round
            waiting = [*rounds.bundle.waiting_requests, *requests]
            most = len(waiting) if most is None else most
            try:
                result = rounds.attempt(waiting[:most], waiting[most:], requests_version, broken)
            except ON_PURPOSE:
                raise
            except Exception as failure:  # isolated: any error is logged with its traceback and recorded
                self._is_reload_due = True
                if is_fault(failure):
                    raise
                self._reload()
                if isinstance(failure, Broken):
                    self._set_aside_units(failure, broken)
                elif isinstance(failure, PlannerFailed) or not most:
                    raise
                else:
                    failing, cause = most, failure
                    most = failing // 2 if is_sound else 0
                if rounds.bundle.round > before:
                    return RoundResult(True)
            else:
                if most == len(waiting):
                    self._failures = 0
                    return result
                most, is_sound, requests = None if most else failing // 2, True, []
            if is_sound and most == 0:  # the next request alone makes a round fail
                self._set_aside(of_request(waiting[0]).set_aside(cause, rounds.bundle.now.wall), broken, cause)
                most = None

    def _set_aside_units(self, failure: Broken, broken: dict[str, SetAside]) -> None:
        """Add what *failure* names to *broken*; raises it if all of that is there already."""
        entries = [(unit.set_aside(cause, self._rounds.bundle.now.wall), cause) for unit, cause in failure.causes]
        entries = [(entry, cause) for entry, cause in entries if entry.id not in broken]
        for entry, cause in entries:
            self._set_aside(entry, broken, cause)
        if not entries:
            raise failure

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

    def _reload(self) -> None:
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
