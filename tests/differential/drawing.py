"""How many histories are drawn, and which: ``PULSAR_SPARK_HISTORIES`` and ``PULSAR_SPARK_SEED``."""

import os
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, seed, settings

SEED = int(os.environ.get("PULSAR_SPARK_SEED", 1))
HISTORIES = int(os.environ.get("PULSAR_SPARK_HISTORIES", 0))


def drawn(examples: int) -> Callable[[Callable], Callable]:
    """Decorates a function of what hypothesis draws: *examples* in the suite, always the same ones; what fails is
    shrunk."""
    how = settings(
        max_examples=HISTORIES or examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    return lambda function: seed(SEED)(how(function))
