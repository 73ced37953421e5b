"""Looks at the bundle's lease once a second and logs whether a broker serves, because requests wait silently."""

import logging
import time
from collections.abc import Callable

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease, Holder
from pulsar_spark.storage.processes.starting import Starting, starting
from pulsar_spark.storage.store.away import is_away

LOOK_SECONDS = 1.0

NAME = "pulsar_spark.client"
"""Of the clients' logger."""


class BrokerWatch:
    """One thread looks; any thread may read ``is_there``."""

    def __init__(self, layout: Layout, logger: logging.Logger, clock: Callable[[], float] = time.monotonic):
        self._layout, self._name, self._logger, self._clock = layout, str(layout.root), logger, clock
        self._lease = BundleLease(layout, "")
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
        before, coming = self._holder, None
        try:
            self._holder, self._has_no_lease = self._lease.holder(), not self._lease.path.is_file()
            coming = None if self._holder else starting(self._layout)
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
