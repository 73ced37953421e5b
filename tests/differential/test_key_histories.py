"""Random histories of Key_Shared."""

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.differential.duel import Duel
from tests.differential.key_strategies import histories

SEED = int(os.environ.get("PULSAR_SPARK_SEED", 1))
HISTORIES = int(os.environ.get("PULSAR_SPARK_HISTORIES", 0))


def duels(spark, examples: int) -> None:
    @seed(SEED)
    @settings(
        max_examples=HISTORIES or examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(histories(), st.sampled_from([0, 0, 6, 14]))
    def play(history, limit):
        with tempfile.TemporaryDirectory(prefix="pulsar_spark_history_") as root:
            Duel(spark, Path(root), max_unacked_messages_per_broker=limit).play(history)

    play()


def test_rounds_do_what_the_reference_broker_does():
    duels(None, 25)
