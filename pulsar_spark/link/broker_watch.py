"""Looks at the bundle's lease once a second and logs whether a broker serves, because requests wait silently."""

import logging
import threading
import time
from collections.abc import Callable
from weakref import WeakValueDictionary

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.processes.lease import BundleLease, Holder
from pulsar_spark.storage.processes.starting import Starting, starting
from pulsar_spark.storage.store.away import is_away

LOOK_SECONDS, FRESH_SECONDS = 1.0, 0.5

NAME = "pulsar_spark.client"
"""Of the clients' logger."""


class _Lease:
    """What the lease of a bundle says, read at most every :data:`FRESH_SECONDS` for all clients of the process."""

    def __init__(self, layout: Layout, lease: BundleLease):
        self._layout, self._lease, self._lock = layout, lease, threading.Lock()
        self._found: tuple[float, Holder | None, bool, Starting | None] = float("-inf"), None, False, None

    def look(self, now: float) -> tuple[Holder | None, bool, Starting | None]:
        """The holder, whether there is no lease, and the broker that starts; *now* may be of any clock."""
        with self._lock:
            if not self._found[0] <= now < self._found[0] + FRESH_SECONDS:
                holder = self._lease.holder()
                coming = None if holder else starting(self._layout)
                self._found = now, holder, not self._lease.path.is_file(), coming
            return self._found[1:]


_leases: WeakValueDictionary[tuple[int, str], _Lease] = WeakValueDictionary()
_leases_lock = forks.module_lock()


def _lease_of(layout: Layout) -> _Lease:
    lease = BundleLease(layout, "")
    with _leases_lock:
        key = forks.generation, str(lease.path)
        found = _leases.get(key)
        if found is None:
            found = _leases[key] = _Lease(layout, lease)
        return found


class BrokerWatch:
    """One thread looks; any thread may read ``is_there``."""

    def __init__(self, layout: Layout, logger: logging.Logger, clock: Callable[[], float] = time.monotonic):
        self._layout, self._name, self._logger, self._clock = layout, str(layout.root), logger, clock
        self._lease = _lease_of(layout)
        self._holder: Holder | None = None
        self._next_look = float("-inf")
        self._was_there: bool | None = None
        self._has_no_lease = self._has_committed = self._is_coming = False
        self.is_away = False
        """Whether the root was gone at the last look, although it had existed."""

    @property
    def is_there(self) -> bool:
        """Whether a broker served at the last look. One without a lease counts once it has committed something."""
        return not self.is_away and (self._holder is not None or (self._has_no_lease and self._has_committed))

    def note_commit(self) -> None:
        self._has_committed = True

    def look(self) -> None:
        """At most once a second."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        if is_away(self._layout.root):
            if not self.is_away:
                self.is_away = True
                text = "root %r has disappeared: nothing is delivered or answered until it is back; "
                self._logger.warning(text + "requests wait; mount it again", self._name)
            return
        if self.is_away:
            self.is_away = False
            self._logger.warning("root %r is back: waiting work continues", self._name)
        before = self._holder
        try:
            self._holder, self._has_no_lease, coming = self._lease.look(now)
        except OSError as unclear:
            self._logger.debug("the lease of root %r cannot be read: %s", self._name, unclear)
            return
        was_coming, self._is_coming = self._is_coming, coming is not None
        if self._holder is None:
            self._log_none(before, coming, was_coming)
        elif before is None:
            what = "connected" if self._was_there is None else "connected again"
            self._logger.info("%s to broker %s of root %r", what, self._holder.broker_id, self._name)
        elif before.broker_id != self._holder.broker_id:
            text = "broker %s of root %r took over from %s"
            self._logger.info(text, self._holder.broker_id, self._name, before.broker_id)
        self._was_there = self._holder is not None

    def _log_none(self, before: Holder | None, coming: Starting | None, was_coming: bool) -> None:
        nothing = "nothing is delivered or answered until"
        if coming is not None:
            if not was_coming:
                self._logger.warning("no broker serves root %r yet: %s; %s it does", self._name, coming, nothing)
        elif before is not None:
            text = "the broker %s of root %r is gone: %s a broker is back; requests wait; start one with "
            text += "pulsar-spark broker --root %s"
            self._logger.warning(text, before.broker_id, self._name, nothing, self._name)
        elif self._was_there is None or was_coming:
            text = "no broker serves root %r: %s a broker does; start one with pulsar-spark broker --root %s"
            self._logger.warning(text, self._name, nothing, self._name)
