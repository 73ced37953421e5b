"""``python -m tests.benchmarks.kept_broker <folder> <on | off>``: a broker that plans without Spark, until its standard
input ends; with housekeeping or without. Things are old at once, so that there is work from the start."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from pulsar_spark.broker.upkeep import housekeeping
from pulsar_spark.protocol.policies.policies import HISTORY_SECONDS, TIME_TRAVEL_SECONDS
from pulsar_spark.storage.delta import checkpoints, definitions
from pulsar_spark.storage.upkeep import housekeeping as storage_housekeeping
from pulsar_spark.storage.upkeep import kept_tables, shortening
from pulsar_spark.storage.upkeep.retention import FILES_PROPERTY
from pulsar_spark.testing.plain_broker import PlainBroker

TOLD_SECONDS = 60


@contextmanager
def quickly_old(seconds: int, **paces: float) -> Iterator[None]:
    """What is in no use goes after so many seconds, and topics made here tell of files that left them for a minute:
    longer, or nobody would know that they may go. *paces* are those of broker.upkeep.housekeeping."""
    with ExitStack() as hurried:
        for module in (checkpoints, shortening):
            hurried.enter_context(patch.object(module, "CHOSEN_SECONDS", seconds))
        number = kept_tables._number
        hurried.enter_context(
            patch.object(
                kept_tables,
                "_number",
                lambda *policy: seconds if policy[-1] in (HISTORY_SECONDS, TIME_TRAVEL_SECONDS) else number(*policy),
            )
        )
        hurried.enter_context(patch.object(kept_tables, "OWN_SECONDS", seconds))
        hurried.enter_context(
            patch.dict(definitions._CONFIGURATION, {FILES_PROPERTY: f"interval {TOLD_SECONDS} seconds"})
        )
        hurried.enter_context(patch.object(storage_housekeeping, "promised_seconds", lambda table: seconds))
        for name, value in paces.items():
            hurried.enter_context(patch.object(housekeeping, name, value))
        yield


if __name__ == "__main__":
    with quickly_old(0, LOOK_SECONDS=0.5), PlainBroker(Path(sys.argv[1]), housekeeping=sys.argv[2] == "on"):
        print("serves", flush=True)
        sys.stdin.read()
