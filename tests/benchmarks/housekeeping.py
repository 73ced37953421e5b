"""What many small writes leave behind: files and bytes under a root, before and after housekeeping, and its cost.

Messages are sent one a commit, with a round every so often, by a broker that plans without Spark. Housekeeping is done
without its rests, as if the time were over for which things stay.
"""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from pulsar_spark.storage import checkpoints, shortening
from pulsar_spark.storage.checkpoints import make_checkpoint
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.housekeeping import keep_house
from pulsar_spark.storage.kept_tables import NEEDED, kept_tables
from pulsar_spark.storage.log import TableLog
from tests.benchmarks.bench import Bench, seconds
from tests.benchmarks.figures import BYTES, COUNT, SECONDS, Figure
from tests.requests import On
from tests.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/small"
SENDS_A_ROUND = 20


def measure(bench: Bench) -> Iterator[Figure]:
    sends, folder = bench.few(2_000, 20_000), bench.new_folder("housekeeping")
    bench.say(f"housekeeping: {sends:,} sends, one a commit")
    engine = _written(folder, sends)
    left = _files(folder)
    bench.say("housekeeping: keeping house")
    with patch.object(checkpoints, "CHOSEN_SECONDS", 0), patch.object(shortening, "CHOSEN_SECONDS", 0):
        elapsed = seconds(lambda: _keep(engine))
    kept = _files(folder)
    what, compared = f"after {sends:,} sends of a byte and {sends // SENDS_A_ROUND:,} rounds", "as they were left"
    yield Figure("housekeeping", f"files {what}", COUNT, [len(kept)], compared, [len(left)])
    yield Figure("housekeeping", f"bytes {what}", BYTES, [sum(kept)], compared, [sum(left)])
    yield Figure("housekeeping", f"housekeeping of all that, without its rests: {sends:,} sends", SECONDS, [elapsed])


def _written(folder: Path, sends: int) -> SparkEngine:
    engine, on = new_engine(None, folder), On(TOPIC)
    engine.create_topic(TOPIC)
    engine.round([on.subscribe("A"), on.flow("A", sends)], 1)
    for number in range(sends):
        engine.publish(TOPIC, -1, [1], publish_time_ms=number)
        if number % SENDS_A_ROUND == SENDS_A_ROUND - 1:
            engine.round([on.ack(number - SENDS_A_ROUND + 1, number)], number)
    engine.restart(sends)
    return engine


def _keep(engine: SparkEngine) -> None:
    """Until nothing is left to do."""
    for _ in range(2):
        for kept in kept_tables(engine.layout, read_latest(engine.layout, *NEEDED)):
            if TableLog(kept.path).exists():
                make_checkpoint(kept.path)
                for _ in keep_house(kept.path, kept.needs, history_seconds=0, time_travel_seconds=0):
                    """One step after the other."""


def _files(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
