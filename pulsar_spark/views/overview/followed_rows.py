"""The latest rows of a bundle, with notes of what changed, and with the rounds as they pass."""

from collections import deque

from pulsar_spark.storage.cursor_ledger.committed_rounds import Round
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows

MOST_ROUNDS = 1_000


class FollowedRows(LatestRows):
    """The latest rows. Whoever reads the changes empties them; all is new if it ``begins_anew``."""

    def _begin(self) -> None:
        super()._begin()
        self.changed_cursors: set[CursorKey] = set()
        self.changed_topics: set[str] = set()
        self.rounds: deque[dict] = deque(maxlen=MOST_ROUNDS)
        self.begins_anew = True

    def _apply_round(self, found: Round) -> None:
        super()._apply_round(found)
        self.changed_cursors.update(key for key, _ in found.ranges)

    def _apply_row(self, row: dict) -> None:
        super()._apply_row(row)
        if row["kind"] == "round":
            self.rounds.append(row)
        elif row["kind"] == "topic":
            self.changed_topics.add(row["topic_id"])
        elif row["subscription"] is not None:
            self.changed_cursors.add(CursorKey(row["topic_id"], row["partition"], row["subscription"]))
