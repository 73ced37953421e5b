"""Who comes back is decided by the plan; what keeps its hash meanwhile is found before it, since whose line an entry
stands in is an input of the plan. Over random Key_Shared histories the two say the same."""

import re
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given

from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.key_shared import keyed
from pulsar_spark.broker.key_shared.keyed import owners_of
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from tests.differential import key_strategies
from tests.differential.drawing import drawn
from tests.differential.duel import Duel


class Watched(Duel):
    """Plays a history and compares, after each round, what the plan left with what was taken to be *out* before it; the
    rest is asked elsewhere."""

    def __init__(self, root: Path, out: dict):
        super().__init__(None, root)
        self.out, self.compared = out, 0

    def _run(self, requests: list[dict], crash: str | None = None) -> bool:
        self.out.clear()
        is_dead = super()._run(requests, crash)
        for cursor in () if is_dead else self.engine.rounds.bundle.cursors.values():
            if cursor.key in self.out:
                assert self.out[cursor.key] == self._keeps_hashes(cursor), cursor
                self.compared += len(self.out[cursor.key])
        return is_dead

    def _compare(self, found: dict, expected: dict, where: str) -> None:
        """Not here."""

    def _keeps_hashes(self, cursor: Cursor) -> set[int]:
        """What is pending at another than its owner, or is to come back, now that the round is over."""
        pending = [range_ for range_ in cursor.ranges() if range_.status == PENDING]
        owners, found = owners_of(cursor.selector), set()
        hashes = self.engine.rounds.bundle.topics[cursor.topic].hashes(cursor.key.partition)
        for range_ in pending:
            positions = np.arange(range_.first, range_.last + 1)
            is_elsewhere = owners.of(hashes.at(positions)) != owners.number(range_.consumer_id)
            found |= set(positions[is_elsewhere | (range_.due_time is not None)].tolist())
        return found


def test_what_is_out_before_the_plan_is_what_it_leaves_out(monkeypatch):
    out, compared, real = {}, [], keyed.awaited_entries

    def noted(changes, *given):
        found = real(changes, *given)
        out[changes.cursor.key] = set(found.positions.tolist())
        return found

    monkeypatch.setattr(keyed, "awaited_entries", noted)

    @drawn(10)
    @given(key_strategies.histories())
    def play(history):
        history = [turn._replace(steps=[re.sub(r"@\d+", "", step) for step in turn.steps]) for turn in history]
        with tempfile.TemporaryDirectory(prefix="pulsar_spark_history_") as root:
            duel = Watched(Path(root), out)
            duel.play(history)
            compared.append(duel.compared)

    play()
    assert any(compared), "else nothing was out in any of them"
