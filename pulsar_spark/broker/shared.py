"""Brokers share the bundles of a root: each process serves as many as any other, takes over from one that has gone, and
gives some up when one more comes.

A process says that it is there by a lease of its own, beside the bundles; which bundle is served by whom the leases of
the bundles say. What to take and what to give up of what is seen there is a pure rule (protocol.bundles.share), and
what is seen may be out of date: two that reach for one bundle are told apart by its lease, and whatever leases say, by
the fence of a round's commit. A bundle that is given up ends its round first and gives its lease back; who takes it
begins with what is committed, so nothing is lost or done twice, and consumers notice nothing. So it is with one that
somebody wants to split: it is given to who asked, and the two are taken, and shared, when they are free.

A bundle that fails is left alone for a while, by this process, and the others are served on. A process that is to end
when nothing is left to do ends when all of its bundles are done, and what one of them asked of another, or wrote to its
topics, is done too, and what others serve is theirs; there a failure ends it.
"""

import logging
import threading
import time
from collections.abc import Callable

from pulsar_spark.broker.runner import Broker
from pulsar_spark.broker.tenure import new_broker_id
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.protocol.bundles import share
from pulsar_spark.storage.away import check_there
from pulsar_spark.storage.bundles import bundles_of, layouts_of
from pulsar_spark.storage.faults import is_fault_of_disk
from pulsar_spark.storage.layout import BUNDLES, Layout
from pulsar_spark.storage.lease import LEASE_SECONDS, BundleLease, Holder
from pulsar_spark.storage.lease_file import LeaseFile
from pulsar_spark.storage.store import AnyPath

LOOK_SECONDS, AGAIN_SECONDS = 0.5, 60.0
"""Between two looks at who serves what, at least, and how long a bundle that failed is left alone."""
SIGN_SECONDS = LEASE_SECONDS / 4
"""Between two signs of life."""
FILES_A_SECOND, FILES_A_SECOND_OF_A_STORE = 200, 4
"""So many files a process reads for a look, a lease of each bundle and of each process: where there are hundreds, looks
are rarer, though never so rare that signs of life are late."""
log = logging.getLogger(__name__)


class Shared:
    """Serves a share of the bundles of a root until it is stopped. *make* makes the broker of a bundle, from its
    folder's name and the id of this process; with *available_now* brokers that end by themselves, and so does this."""

    def __init__(self, root, make: Callable[[str, str], Broker], *, available_now: bool = False):
        self.layout, self._make, self._available_now = Layout(root), make, available_now
        self.broker_id = new_broker_id()
        self.failure: BaseException | None = None
        self.brokers: dict[str, Broker] = {}
        """By the folder of the bundle that each serves."""
        self._done: dict[str, Broker] = {}
        """Those that came to their end, of bundles that may have something to do again."""
        self._leases: dict[str, BundleLease] = {}
        self._signs: dict[AnyPath, LeaseFile] = {}
        self._again_at: dict[str, float] = {}
        self._idle_since: float | None = None
        self._folder = self.layout.root / BUNDLES / "brokers"
        self._stopping = threading.Event()
        self._next_sign, self._is_bearing, self._files = 0.0, False, 0
        self._thread = threading.Thread(target=self._run, name="shared-bundles", daemon=True)

    def __enter__(self) -> "Shared":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if self.failure is not None and kind is None:
            raise self.failure

    def start(self) -> bool:
        """Begin to take bundles."""
        check_there(self._folder)
        self.layout.store.make_folder(self._folder)
        self._thread.start()
        return True

    def stop(self) -> None:
        """Stop after the rounds under way. Safe to call from a signal handler, and twice."""
        self._stopping.set()

    def wait(self) -> None:
        """Block until it has stopped; raises what stopped it, if it was not asked to."""
        self._stopping.wait()
        self.close()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Stop, and return when all that was served is given back."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._look_patiently()
                a_second = FILES_A_SECOND if self.layout.store.is_local else FILES_A_SECOND_OF_A_STORE
                self._stopping.wait(max(LOOK_SECONDS, min(self._files / a_second, SIGN_SECONDS)))
        except Exception as failure:  # whatever it is, who waits is told
            self.failure = failure
            self._stopping.set()
        finally:
            for broker in list(self.brokers.values()):
                broker.stop()
            for folder in list(self.brokers):
                self._let_go(folder)
            self._sign().change(lambda said: {"broker_id": self.broker_id, "is_held": False})
            self._remove(self._path(self.broker_id))

    def _look_patiently(self) -> None:
        """Look again later where the disk does not let it: what is served is served on, by brokers that bear it."""
        try:
            self.look()
        except OSError as fault:
            if not is_fault_of_disk(fault):
                raise
            if not self._is_bearing:
                log.warning(
                    "broker %s cannot read at present which brokers serve which bundles: %s", self.broker_id, fault
                )
            self._is_bearing = True
        else:
            self._is_bearing = False

    def look(self) -> None:
        """See who serves what, and take or give up what the rule says."""
        if time.monotonic() >= self._next_sign:
            self._sign().change(lambda said: {"broker_id": self.broker_id, "is_held": True})
            self._next_sign = time.monotonic() + SIGN_SECONDS
        self._drop_ended()
        served: dict[str, list[str]] = {broker: [] for broker in self._there()}
        free, is_beside_others, now = [], False, time.monotonic()
        for layout in layouts_of(self.layout):
            holder = self._lease(layout).holder()
            if layout.bundle in self.brokers:
                served[self.broker_id].append(layout.bundle)
            elif holder is not None:
                is_beside_others = True
                if holder.broker_id in served:  # else it takes no share: it splits the bundle, or serves that alone
                    served[holder.broker_id].append(layout.bundle)
            elif now >= self._again_at.get(layout.bundle, 0.0) and not self._is_done(layout.bundle):
                free.append(layout.bundle)
        self._files = len(self._signs) + len(self._leases)
        decided = share(self.broker_id, served, len(free))
        for folder in decided.give_up:
            log.info("broker %s gives bundle %s to another broker", self.broker_id, self._slice(folder))
            self._let_go(folder)
        for folder in free[: decided.take]:
            if not self._stopping.is_set():
                self._take(folder)
        if self._available_now:
            self._end_or_wait(now, is_idle=not self.brokers and not free, is_beside_others=is_beside_others)

    def _end_or_wait(self, looked: float, *, is_idle: bool, is_beside_others: bool) -> None:
        """End where nothing is left to do. What others serve is theirs, once they were there for as long as a lease
        lasts from when there was nothing else: until then they may be gone."""
        if not is_idle:
            self._idle_since = None
        elif not is_beside_others or (self._idle_since is not None and looked >= self._idle_since + LEASE_SECONDS):
            self._stopping.set()
        elif self._idle_since is None:
            self._idle_since = time.monotonic()

    def _is_done(self, folder: str) -> bool:
        """Is there nothing left to do in a bundle, or again something?"""
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
        except Exception as failed:  # others are served on
            self._leave_alone(folder, failed)

    def _let_go(self, folder: str) -> None:
        broker = self.brokers.pop(folder)
        broker.close()
        if broker.failure is not None:
            self._leave_alone(folder, broker.failure)

    def _drop_ended(self) -> None:
        """Take notice of bundles that are served no more: another took them over, or wants them, or they failed."""
        for folder, broker in list(self.brokers.items()):
            if broker.is_stopping:
                self._let_go(folder)
                if self._available_now and broker.failure is None and not broker.is_handed_over:
                    self._done[folder] = broker

    def _slice(self, folder: str) -> object:
        """What people know the bundle of a folder by: its folder keeps the name that it had before splits."""
        bundles = bundles_of(self.layout)
        return bundles.range_of(folder) if folder in bundles.folders else folder

    def _leave_alone(self, folder: str, failed: BaseException) -> None:
        if isinstance(failed, BrokerFenced):
            log.warning("bundle %s: %s", self._slice(folder), failed)
        else:
            log.error(
                "bundle %s is not taken for %g s: %s", self._slice(folder), AGAIN_SECONDS, failed, exc_info=failed
            )
            self._again_at[folder] = time.monotonic() + AGAIN_SECONDS
            if self._available_now:
                self.failure = self.failure or failed
                self._stopping.set()

    def _there(self) -> set[str]:
        """The brokers that are there; the files of those that have gone go."""
        found, names = {self.broker_id}, self.layout.store.names(self._folder)
        known, self._signs = self._signs, {}
        for path in (self._folder / name for name in names if name.endswith(".json")):
            sign = self._signs[path] = known.get(path) or LeaseFile(path, Holder, lambda: LEASE_SECONDS)
            said = sign.read()
            if sign.is_held(said):
                found.add(said.broker_id)
            elif said is not None and said.broker_id != self.broker_id:
                self._remove(path)
        return found

    @staticmethod
    def _remove(sign: AnyPath) -> None:
        """With the lock beside it, which nobody but its broker takes."""
        sign.unlink(missing_ok=True)
        sign.with_suffix(".lock").unlink(missing_ok=True)

    def _lease(self, layout: Layout) -> BundleLease:
        return self._leases.setdefault(layout.bundle, BundleLease(layout, self.broker_id))

    def _sign(self) -> LeaseFile:
        path = self._path(self.broker_id)
        return self._signs.setdefault(path, LeaseFile(path, Holder, lambda: LEASE_SECONDS))

    def _path(self, broker_id: str) -> AnyPath:
        return self._folder / f"{broker_id}.json"
