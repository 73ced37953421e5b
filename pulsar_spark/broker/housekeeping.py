"""A broker keeps house while it serves, unless it is told not to: in the background it keeps the tables of its root
small and their logs short (see storage.housekeeping), so that a root left alone for a year is one like on its first
day.

One thread does one step at a time, and rests nine times as long as a step took, or the shorter the more waits to be
done: what rounds leave in a minute must be put away in a minute. Before each it looks whether the lease
is this broker's still; what it decided before it heard that another took over stays right. An error ends what is done
for that table, for now: a full disk, a foreign OPTIMIZE or VACUUM in between, a topic that was deleted. A table is
looked at again when so many commits have been made to it, and now and then in any case, because what it holds gets old.

How long things stay, and whether a topic is kept at all, policies say (see storage.kept_tables).

Each look also gives memory back: what is free and in pieces were 80 KB more a round over thousands of rounds
(``python -m tests.benchmarks --only soak_plain``).
"""

import logging
import time
from collections import Counter
from collections.abc import Callable

from deltalake.exceptions import DeltaError

from pulsar_spark.broker.background import Background, Rotation
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.housekeeping import Done, keep_house
from pulsar_spark.storage.kept_tables import NEEDED, Kept, kept_tables
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease import BundleLease
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.store import AnyPath
from pulsar_spark.storage.table_parts import give_memory_back
from pulsar_spark.table_specs import CURSOR_LEDGER

LOOK_SECONDS = 30.0
COMMITS = 64
"""So many commits to a table are worth a look into it."""
IDLE_SECONDS, AGAIN_SECONDS = 6 * 60 * 60, 10 * 60
"""So long after a look there is another, and after one that came to nothing."""
REST = 9
"""A step is followed by so many times its time, as long as the table is not behind."""
TABLES_A_LOOK = 30
"""So many tables of a root in an object store are looked at each time: one a second."""
BEHIND = 4 * COMMITS
"""A table is behind when so many commits have been made to it since it was looked at; the rest is the shorter the more
they are."""
MAY_PASS = (OSError, PulsarSparkError, DeltaError)
log = logging.getLogger(__name__)


class Housekeeping:
    """Of one broker. *note* is told, table by table, what was done."""

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
        """Begin to work by itself."""
        self._background.start(self._run)

    def close(self) -> None:
        """End when the step under way is done."""
        self._background.close()

    def _run(self) -> None:
        while not self._background.stopping.wait(LOOK_SECONDS):
            self.look()
            give_memory_back()

    def look(self) -> None:
        """Do what there is to do, table by table. Whatever fails ends none of what is done later: errors of Arrow and
        of native code have no base of their own, so all are caught, and one that is none of :data:`MAY_PASS` is said
        with its traceback."""
        try:
            found = self._find()
        except Exception as failed:  # see above
            self._say("the root", failed)
            return
        self._failed.pop("the root", None)
        there, names = {kept.path for kept in found}, {kept.name for kept in found}
        self._next_look = {path: due for path, due in self._next_look.items() if path in there}
        self._failed = {name: said for name, said in self._failed.items() if name in names}
        for kept in self._rotation.some(found):
            try:
                self._look_at(kept)
            except Exception as failed:  # see above
                self._say(kept.name, failed)
            if self._background.stopping.is_set():
                return

    def _find(self) -> list[Kept]:
        """The tables that are to be kept; the state is read for it only where rounds came since the last time."""
        version = TableLog(self._layout.broker_table(CURSOR_LEDGER.name)).latest(self._found_at)
        if version != self._found_at:
            self._found = list(kept_tables(self._layout, read_latest(self._layout, *NEEDED)))
            self._found_at = version
        return self._found

    def is_ours(self) -> bool:
        """Does this broker serve the bundle still, as far as its lease says?"""
        holder = self._lease.holder()
        return holder is not None and holder.broker_id == self._lease.broker_id

    def _look_at(self, kept: Kept) -> None:
        """Do what there is to do for a table that is worth a look."""
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
            is_told=kept.is_told,
            versions=kept.versions,
        )
        while not self._background.stopping.is_set() and self.is_ours():
            started = time.monotonic()
            step: Done | None = next(steps, None)
            if step is None:
                return True
            if step.count:
                done[step.what] += step.count
            self._background.stopping.wait(rest * (time.monotonic() - started))
        return False

    def _say(self, name: str, failed: Exception) -> None:
        """Once for each cause, so that what stays as it is does not fill the log."""
        if self._failed.get(name) != str(failed):
            self._failed[name] = str(failed)
            is_known = isinstance(failed, MAY_PASS)
            log.warning(
                "housekeeping of %s failed and is tried again: %s", name, failed, exc_info=None if is_known else failed
            )
