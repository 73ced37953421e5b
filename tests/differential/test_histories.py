"""Random histories, the reference broker against real rounds: the same deliveries, replies, states and letters, round by round, also over restarts.

The same histories run twice: on Spark's plan, as many as the suite has time for, and, many more, on its twin without Spark. ``PULSAR_SPARK_HISTORIES=n`` runs n of each,
``PULSAR_SPARK_SEED=s`` others than usual. What fails is shrunk and printed as the turns of one history; the same seed finds it again.
"""
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from pulsar_spark.broker import letters, rounds, state
from tests.differential.duel import Duel
from tests.differential.strategies import histories

SEED = int(os.environ.get("PULSAR_SPARK_SEED", 1))
HISTORIES = int(os.environ.get("PULSAR_SPARK_HISTORIES", 0))


@pytest.fixture
def close_borders(monkeypatch):
    """Pages, snapshots and commits of letters so small that short histories cross their borders."""
    monkeypatch.setattr(state, "MAX_PAGE_RANGES", 3)
    monkeypatch.setattr(rounds, "SNAPSHOT_EVERY", 7)
    monkeypatch.setattr(letters, "LETTERS_A_COMMIT", 2)


def duels(spark, examples: int) -> None:
    @seed(SEED)
    @settings(max_examples=HISTORIES or examples, deadline=None, database=None, phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False, suppress_health_check=list(HealthCheck))
    @given(histories())
    def play(history):
        with tempfile.TemporaryDirectory(prefix="pulsar_spark_history_") as root:
            Duel(spark, Path(root)).play(history)

    play()


def test_rounds_do_what_the_reference_broker_does(close_borders):
    duels(None, 40)


def test_spark_does_what_the_reference_broker_does(spark, close_borders):
    duels(spark, 12)
