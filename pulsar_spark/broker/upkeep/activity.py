"""Append samples of activity to the table ``activity``, once a minute.

A crash loses samples of a minute, never a count: counters only grow, and a broker that starts samples everything.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.broker.round.samples import Samples
from pulsar_spark.broker.upkeep.background import Background
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.scan import MAY_PASS
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.table_specs import ACTIVITY

LOOK_SECONDS = 2.0
log = logging.getLogger(__name__)


class ActivityUpkeep:
    """Appends samples of a broker's *rounds* from a thread of its own; *lock* is held while rounds run."""

    def __init__(self, layout: Layout, rounds: Rounds, lock: threading.Lock):
        self._layout, self._rounds, self._lock = layout, rounds, lock
        self._background, self._failed = Background("activity"), ""
        self._samples = rounds.samples = Samples(rounds.bundle)

    def start(self) -> None:
        self._background.start(self._run)

    def close(self) -> None:
        """Append what is left, also of the minute under way; another broker may append more of it."""
        self._background.close()
        with self._locked() as may_take:
            if may_take:
                self._samples.take(self._rounds.bundle)
        self.append()

    def _run(self) -> None:
        while not self._background.stopping.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Take samples if a minute is over, also without a round; append those that wait."""
        with self._locked() as may_take:
            if may_take:
                self._samples.before_round(self._rounds.bundle, self._rounds.clock.look().wall)
        self.append()

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether samples may be taken in the block: no round runs, and memory has nothing that was not committed."""
        is_ours = self._lock.acquire(timeout=LOOK_SECONDS)
        try:
            yield is_ours and not self._rounds.is_reload_due
        finally:
            if is_ours:
                self._lock.release()

    def append(self) -> None:
        """Append the samples that wait, in one commit; after a failure they wait for the next time."""
        taken = [self._samples.waiting.popleft() for _ in range(len(self._samples.waiting))]
        if not taken:
            return
        path = self._layout.broker_table(ACTIVITY.name)
        try:
            create_table(path, ACTIVITY)
            AppendTable(path).append(ACTIVITY.rows([row for rows in taken for row in rows]))
        except MAY_PASS as failed:
            self._samples.waiting.extendleft(reversed(taken))
            if self._failed != str(failed):
                log.warning("samples of activity cannot be written and are tried again: %s", failed)
            self._failed = str(failed)
        else:
            self._failed = ""
