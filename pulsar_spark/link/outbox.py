"""A client's unsent requests, and when the next commit is due.

Requests that nobody waits for start one at most every 50 ms.
"""

from collections.abc import Callable

SPACING = 0.05
Source = Callable[[], list[dict]]
Committed = Callable[[int], None]
"""Called with the version of the commit, or -1 if the connection failed before."""


class Outbox:
    """Guarded by the channel's condition. Times are those of its clock."""

    def __init__(self) -> None:
        self.rows: list[dict] = []
        self.is_urgent = False
        self._committed: list[Committed] = []
        self._sources: dict[Source, float] = {}
        self._last_commit = float("-inf")

    def put(self, rows: list[dict], committed: Committed | None, *, is_urgent: bool) -> None:
        self.rows += rows
        if committed is not None:
            self.when_committed(committed)
        self.is_urgent |= is_urgent

    def when_committed(self, committed: Committed) -> None:
        self._committed.append(committed)

    def gather(self, source: Source, due: float, *, is_urgent: bool) -> bool:
        """Ask *source* for its rows at *due* or earlier; return whether the channel must wake up for that."""
        self.is_urgent |= is_urgent
        is_new = is_urgent or due < self._sources.get(source, float("inf"))
        if is_new:
            self._sources[source] = due
        return is_new

    def is_due(self, now: float, *, is_last: bool) -> bool:
        """Whether to commit now; the *is_last* commit does not wait."""
        if self.is_urgent:
            return True
        is_spaced = is_last or now >= self._last_commit + SPACING
        return is_spaced and bool(self.rows or any(due <= now for due in self._sources.values()))

    def next_due(self, now: float) -> float:
        """When to commit; infinity without rows and sources."""
        if not self.rows and not self._sources:
            return float("inf")
        wanted = now if self.rows else min(self._sources.values())
        return now if self.is_urgent else max(wanted, self._last_commit + SPACING)

    def take_sources(self) -> list[Source]:
        """Take the sources, to be called without the lock before :meth:`take`."""
        sources, self._sources = list(self._sources), {}
        return sources

    def take(self) -> tuple[list[dict], list[Committed]]:
        rows, committed = self.rows, self.take_committed()
        self.rows, self.is_urgent = [], False
        return rows, committed

    def take_committed(self) -> list[Committed]:
        committed, self._committed = self._committed, []
        return committed

    def note_commit(self, now: float) -> None:
        self._last_commit = now
