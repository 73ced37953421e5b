"""Brokers share the bundles of a root: each process serves as many as any other, takes over from one that ended, and
gives some up for a new one.

Lease files show which processes run and which serves each bundle; protocol.topics.bundles.share decides. If looks are
out of date, the bundle's lease decides. A failed bundle is left alone for a while.
"""

import logging
import threading
import time
from collections.abc import Callable

from pulsar_spark.broker.runner import Broker
from pulsar_spark.broker.service.lease_keeper import new_broker_id
from pulsar_spark.broker.service.running_brokers import SIGN_SECONDS, RunningBrokers
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.protocol.topics.bundles import share
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import LEASE_SECONDS, BundleLease
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.topics.bundles import bundles_of, layouts_of

LOOK_SECONDS, AGAIN_SECONDS = 0.5, 60.0
"""Least time between two looks at the leases, and how long a failed bundle is left alone."""
FILES_A_SECOND, FILES_A_SECOND_OF_A_STORE = 200, 4
"""Lease files that a process may read per second. With hundreds of leases, looks are rarer, but signs of life are never
late."""
log = logging.getLogger(__name__)


class Shared:
    """Serves a share of a root's bundles until stopped. *make* creates a broker from a bundle's folder name and this
    process's id."""

    def __init__(self, root, make: Callable[[str, str], Broker], *, available_now: bool = False):
        self.layout, self._make, self._available_now = Layout(root), make, available_now
        self.broker_id = new_broker_id()
        self.failure: BaseException | None = None
        self.brokers: dict[str, Broker] = {}
        """By the folder of the bundle that each serves."""
        self._done: dict[str, Broker] = {}
        """Those that came to their end, of bundles that may have something to do again."""
        self._leases: dict[str, BundleLease] = {}
        self._again_at: dict[str, float] = {}
        self._idle_since: float | None = None
        self._running = RunningBrokers(self.layout, self.broker_id)
        self._stopping = threading.Event()
        self._cannot_look, self._files = False, 0
        self._thread = threading.Thread(target=self._run, name="shared-bundles", daemon=True)

    def __enter__(self) -> "Shared":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if self.failure is not None and kind is None:
            raise self.failure

    def start(self) -> bool:
        self._running.begin()
        self._thread.start()
        return True

    def stop(self) -> None:
        """Stop after the rounds under way. Safe twice, and in a signal handler."""
        self._stopping.set()

    def wait(self) -> None:
        """Block until stopped; raises the failure."""
        self._stopping.wait()
        self.close()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Stop, and return once all bundles are given back."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._look_patiently()
                a_second = FILES_A_SECOND if self.layout.store.is_local else FILES_A_SECOND_OF_A_STORE
                self._stopping.wait(max(LOOK_SECONDS, min(self._files / a_second, SIGN_SECONDS)))
        except Exception as failure:  # any error: wait() raises it
            self.failure = failure
            self._stopping.set()
        finally:
            for broker in list(self.brokers.values()):
                broker.stop()
            for folder in list(self.brokers):
                self._release(folder)
            self._running.end()

    def _look_patiently(self) -> None:
        try:
            self.look()
        except OSError as fault:
            if not is_fault_of_disk(fault):
                raise
            if not self._cannot_look:
                log.warning(
                    "broker %s cannot read at present which brokers serve which bundles: %s", self.broker_id, fault
                )
            self._cannot_look = True
        else:
            self._cannot_look = False

    def look(self) -> None:
        """Read the leases, and take or give up bundles by the rule."""
        self._running.give_sign()
        self._drop_ended()
        served: dict[str, list[str]] = {broker: [] for broker in self._running.look()}
        free, is_beside_others, now = [], False, time.monotonic()
        for layout in layouts_of(self.layout):
            holder = self._lease(layout).holder()
            if layout.bundle in self.brokers:
                served[self.broker_id].append(layout.bundle)
            elif holder is not None:
                is_beside_others = True
                if holder.broker_id in served:  # else the holder splits the bundle, or serves only this one
                    served[holder.broker_id].append(layout.bundle)
            elif now >= self._again_at.get(layout.bundle, 0.0) and not self._is_done(layout.bundle):
                free.append(layout.bundle)
        self._files = len(self._running) + len(self._leases)
        decided = share(self.broker_id, served, len(free))
        for folder in decided.give_up:
            log.info("broker %s gives bundle %s to another broker", self.broker_id, self._slice(folder))
            self._release(folder)
        for folder in free[: decided.take]:
            if not self._stopping.is_set():
                self._take(folder)
        if self._available_now:
            self._end_or_wait(now, is_idle=not self.brokers and not free, is_beside_others=is_beside_others)

    def _end_or_wait(self, looked: float, *, is_idle: bool, is_beside_others: bool) -> None:
        """End if nothing is left. Others' bundles count as served once this was idle for a whole lease."""
        if not is_idle:
            self._idle_since = None
        elif not is_beside_others or (self._idle_since is not None and looked >= self._idle_since + LEASE_SECONDS):
            self._stopping.set()
        elif self._idle_since is None:
            self._idle_since = time.monotonic()

    def _is_done(self, folder: str) -> bool:
        done = self._done.get(folder)
        if done is not None and done.has_news():
            del self._done[folder]
        return folder in self._done

    def _take(self, folder: str) -> None:
        broker = self._make(folder, self.broker_id)
        broker.go_on_with(self._leases[folder])
        broker.hand_over_when_asked()
        try:
            if broker.start(standby_seconds=0):
                self.brokers[folder] = broker
                log.info("broker %s serves bundle %s of %s", self.broker_id, self._slice(folder), self.layout.root)
        except Exception as failed:  # other bundles are still served
            self._leave_alone(folder, failed)

    def _release(self, folder: str) -> None:
        broker = self.brokers.pop(folder)
        broker.close()
        if broker.failure is not None:
            self._leave_alone(folder, broker.failure)

    def _drop_ended(self) -> None:
        for folder, broker in list(self.brokers.items()):
            if broker.is_stopping:
                self._release(folder)
                if self._available_now and broker.failure is None and not broker.is_handed_over:
                    self._done[folder] = broker

    def _slice(self, folder: str) -> object:
        """The slice by which users know a bundle; folders keep their first names."""
        bundles = bundles_of(self.layout)
        return bundles.range_of(folder) if folder in bundles.folders else folder

    def _leave_alone(self, folder: str, failed: BaseException) -> None:
        if isinstance(failed, BrokerFenced):
            log.warning("bundle %s: %s", self._slice(folder), failed)
        else:
            log.error(
                "bundle %s is not taken over for %g s: %s", self._slice(folder), AGAIN_SECONDS, failed, exc_info=failed
            )
            self._again_at[folder] = time.monotonic() + AGAIN_SECONDS
            if self._available_now:
                self.failure = self.failure or failed
                self._stopping.set()

    def _lease(self, layout: Layout) -> BundleLease:
        return self._leases.setdefault(layout.bundle, BundleLease(layout, self.broker_id))
