"""Keep a root's tables small and their logs short, in the background.

One thread does a step at a time and rests nine times as long. Before each step it checks the lease. An error ends work
on that table for now.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable

from pulsar_spark.broker.upkeep.background import Background, Rotation
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import MAY_PASS
from pulsar_spark.storage.delta.table_parts import give_memory_back
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.upkeep.housekeeping import Done, keep_house
from pulsar_spark.storage.upkeep.kept_tables import NEEDED, Kept, kept_tables
from pulsar_spark.table_specs import CURSOR_LEDGER

LOOK_SECONDS = 30.0
COMMITS = 64
"""Commits to a table that are worth a look."""
IDLE_SECONDS, AGAIN_SECONDS = 6 * 60 * 60, 10 * 60
"""Time to the next look at a table, and after one that did not finish."""
REST = 9
"""The rest after a step, in multiples of its duration, unless the table is behind."""
TABLES_A_LOOK = 30
"""Tables of a root in an object store looked at each time: one a second."""
BEHIND = 4 * COMMITS
"""Commits since the last look from which a table is behind; the more there are, the shorter the rest."""
log = logging.getLogger(__name__)


class Housekeeping:
    """The housekeeping of one broker. *note* gets table, kind and count of what was done."""

    def __init__(
        self, layout: Layout, broker_id: str, note: Callable[[str, str, int], None] = lambda table, what, count: None
    ):
        self._layout, self._lease, self._note = layout, BundleLease(layout, broker_id), note
        self._background = Background("housekeeping")
        self._next_look: dict[AnyPath, tuple[int, float]] = {}
        """By table: from which version on, or else when."""
        self._found: list[Kept] = []
        self._found_at = -1
        """The version of the state in which they were found."""
        self._failed: dict[str, str] = {}
        self._rotation = Rotation(None if layout.store.is_local else TABLES_A_LOOK)

    def start(self) -> None:
        self._background.start(self._run)

    def close(self) -> None:
        self._background.close()

    def _run(self) -> None:
        while not self._background.stopping.wait(LOOK_SECONDS):
            self.look()
            give_memory_back()

    def look(self) -> None:
        """Do the work that is due. A failure ends only one table's work; except for :data:`MAY_PASS` it is logged with
        its traceback."""
        try:
            found = self._find()
        except Exception as failed:  # see above
            self._say("the root", failed)
            return
        self._failed.pop("the root", None)
        there, names = {kept.path for kept in found}, {kept.name for kept in found}
        self._next_look = {path: due for path, due in self._next_look.items() if path in there}
        self._failed = {name: text for name, text in self._failed.items() if name in names}
        for kept in self._rotation.some(found):
            try:
                self._look_at(kept)
            except Exception as failed:  # see above
                self._say(kept.name, failed)
            if self._background.stopping.is_set():
                return

    def _find(self) -> list[Kept]:
        """The tables to keep, read again only after new rounds."""
        version = TableLog(self._layout.broker_table(CURSOR_LEDGER.name)).latest(self._found_at)
        if version != self._found_at:
            self._found = list(kept_tables(self._layout, read_latest(self._layout, *NEEDED)))
            self._found_at = version
        return self._found

    def is_ours(self) -> bool:
        """Does this broker's lease of the bundle still hold?"""
        holder = self._lease.holder()
        return holder is not None and holder.broker_id == self._lease.broker_id

    def _look_at(self, kept: Kept) -> None:
        version, instant = self._next_look.get(kept.path, (0, 0.0))
        newest = TableLog(kept.path).latest(version - COMMITS)
        if newest < 0 or (newest < version and time.monotonic() < instant):
            return
        self._next_look[kept.path] = newest + COMMITS, time.monotonic() + AGAIN_SECONDS
        done: Counter[str] = Counter()
        behind = newest - (version - COMMITS) if version else 0
        try:
            if self._step_by_step(kept, done, REST * min(1.0, BEHIND / max(behind, 1))):
                self._next_look[kept.path] = newest + COMMITS, time.monotonic() + IDLE_SECONDS
        finally:
            for what, count in done.items():
                self._note(kept.name, what, count)
                log.info("housekeeping of %s: %s %d", kept.name, what, count)
        self._failed.pop(kept.name, None)

    def _step_by_step(self, kept: Kept, done: Counter, rest: float) -> bool:
        steps = keep_house(
            kept.path,
            kept.needs,
            history_seconds=kept.history_seconds,
            time_travel_seconds=kept.time_travel_seconds,
            promises=kept.promises,
            versions=kept.versions,
        )
        while not self._background.stopping.is_set() and self.is_ours():
            started = time.monotonic()
            step: Done | None = next(steps, None)
            if step is None:
                return True
            if step.number:
                done[step.what] += step.number
            self._background.stopping.wait(rest * (time.monotonic() - started))
        return False

    def _say(self, name: str, failed: Exception) -> None:
        """Log a failure, once for each cause."""
        if self._failed.get(name) != str(failed):
            self._failed[name] = str(failed)
            is_known = isinstance(failed, MAY_PASS)
            log.warning(
                "housekeeping of %s failed and is tried again: %s", name, failed, exc_info=None if is_known else failed
            )
