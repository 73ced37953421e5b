"""What rounds changed since activity was last sampled (see round.samples)."""

from collections.abc import Iterable

from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey


class Changed:
    """Cursors, and names of topics."""

    def __init__(self):
        self.cursors: set[CursorKey] = set()
        self.topics: set[str] = set()

    def note(self, cursors: Iterable[CursorKey], topics: Iterable[str]) -> None:
        self.cursors.update(cursors)
        self.topics.update(topics)
