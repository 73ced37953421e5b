"""What a week of rounds leaves under a root that a broker keeps house in, and what opening its tables costs then.

The week goes by in minutes: rounds without Spark follow each other, a clock that ends now says how far the week is, and
what they write gets that time. Compared is a root that promises a week of older versions of its own tables, too. In
each round a message is delivered, the one before is acknowledged, and somebody gives a sign of life.

Delta's own code asks the machine's clock, so of the files that left a table those go at once that are older than the
promise by that: what is there in the end is right all the same.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta import checkpoints, commits
from pulsar_spark.storage.delta.checkpoints import checkpoint_if_due, make_checkpoint
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of, open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import BUNDLES
from pulsar_spark.storage.upkeep.housekeeping import keep_house
from pulsar_spark.storage.upkeep.kept_tables import NEEDED, Kept, kept_tables
from pulsar_spark.table_specs import CURSOR_LEDGER, LEDGERS, REQUESTS
from tests.benchmarks.bench import Bench, files_under, seconds
from tests.benchmarks.figures import BYTES, COUNT, SECONDS, Budget, Figure
from tests.benchmarks.past import FILES_BESIDE, MOST_FILES
from tests.support.requests import On, keep_alive, request
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/week"
DAY, OLD = 86_400, 7 * 86_400
COMMITS = 64
OWN = (REQUESTS.name, CURSOR_LEDGER.name, LEDGERS.name)
WHAT = {
    "files": (FILES_BESIDE, COUNT, MOST_FILES),
    "bytes": ("bytes of those", BYTES, None),
    "commits": ("commits in their logs", COUNT, None),
    "checkpoint": ("bytes of their largest newest checkpoint", BYTES, None),
    "behind": ("most commits behind one", COUNT, None),
    "open": ("opening all three", SECONDS, None),
    "rounds": ("rounds that tell what happened", COUNT, None),
    "round": ("a round, with what keeping house takes: the last tenth", SECONDS, Budget(1.3, is_ratio=True)),
}


def measure(bench: Bench) -> Iterator[Figure]:
    days = int(os.environ.get("PULSAR_SPARK_WEEK_DAYS", 7))
    a_day = int(os.environ.get("PULSAR_SPARK_WEEK_ROUNDS_A_DAY", bench.few(200, 2_000)))
    found = {}
    for name, promised in (("week", OLD), ("hour", None)):
        bench.say(f"week: {days} days of {a_day:,} rounds, {name} of older versions")
        found[name] = Week(bench.new_folder(f"week-{name}"), days, a_day, promised).run()
    for name, (what, unit, budget) in WHAT.items():
        said = f"{what}, after {days} days of {a_day:,} rounds"
        yield Figure("week", said, unit, found["hour"][name], "a week of own versions", found["week"][name], budget)


class Week:
    """A root in *folder* of so many *days*; *promised*: so many seconds of older versions of its own tables."""

    def __init__(self, folder: Path, days: int, a_day: int, promised: int | None):
        self._rounds, self._step = days * a_day, DAY / a_day
        self._now = self._began = time.time() - days * DAY
        self._promised, self._folder = promised, folder
        self._dated: dict[Path, int] = {}
        self._looked: dict[Path, int] = {}
        self._took: list[float] = []

    def run(self) -> dict[str, list[float]]:
        with self._clock():
            engine = self._engine()
            requests = AppendTable(engine.layout.broker_table(REQUESTS.name), makes_checkpoints=False)
            for number in range(self._rounds):
                self._now = self._began + (number + 1) * self._step
                self._took.append(seconds(lambda: self._round(engine, requests, number)))
        return self._found(engine)

    def _engine(self) -> SparkEngine:
        engine, on = new_engine(None, self._folder), On(TOPIC)
        engine.create_topic(TOPIC)
        asked = [on.subscribe("A", lease_ms=OLD * 2000), on.flow("A", 10 * self._rounds)]
        if self._promised:
            said = {"namespace": "broker", "name": "time_travel_retention_seconds", "value": self._promised}
            asked.append(request("policy", client="admin", properties=said))
        engine.run(asked, int(1000 * self._now))
        return engine

    def _round(self, engine: SparkEngine, requests: AppendTable, number: int) -> None:
        engine.publish(TOPIC, -1, [1])
        asked = [On(TOPIC).ack(number - 1)] if number else []
        known = engine.rounds.bundle.requests_version
        requests.append(REQUESTS.rows([keep_alive("A")]))
        version = requests.append(REQUESTS.rows([*asked, keep_alive("A")]))
        engine.rounds.bundle.requests_version = version
        engine.run([*asked, keep_alive("A")], int(1000 * self._now))
        checkpoint_if_due(engine.layout.broker_table(REQUESTS.name), known, version)
        for kept in kept_tables(engine.layout, read_latest(engine.layout, *NEEDED)) if number % COMMITS == 0 else ():
            if kept.name in (*OWN, TOPIC):
                self._date(kept.path)
                self._keep(kept)

    def _keep(self, kept: Kept) -> None:
        steps = keep_house(
            kept.path,
            kept.needs,
            history_seconds=kept.history_seconds,
            time_travel_seconds=kept.time_travel_seconds,
            promises=kept.promises,
            versions=kept.versions,
            now=lambda: self._now,
        )
        for _ in steps:
            """One after the other."""

    def _date(self, table: Path) -> None:
        """Let what was written to a table since the last time have been written at the time of the clock."""
        log = TableLog(table)
        latest = log.latest()
        for version in range(max(self._dated.get(table, 0) + 1, log.earliest()), latest + 1):
            for line in log.file(version).read_text().splitlines():
                if add := json.loads(line).get("add"):
                    os.utime(table / add["path"], (self._now, self._now))
            os.utime(log.file(version), (self._now, self._now))
        for each in checkpoints.checkpoints(table):
            if each.version > self._dated.get(table, 0):
                os.utime(each.files[0], (self._now, self._now))
        self._dated[table] = latest

    @contextmanager
    def _clock(self) -> Iterator[None]:
        with ExitStack() as told:
            told.enter_context(patch("time.time", lambda: self._now))
            told.enter_context(patch("time.time_ns", lambda: int(self._now * 1e9)))
            for module in (checkpoints, commits):
                told.enter_context(patch.object(module, "start_checkpoint", make_checkpoint))
            yield

    def _found(self, engine: SparkEngine) -> dict[str, list[float]]:
        tables = [engine.layout.broker_table(name) for name in OWN]
        files, of_files = files_under(self._folder / BUNDLES)
        last = [checkpoints.checkpoints(table)[-1] for table in tables]
        latest = [TableLog(table).latest() for table in tables]
        rounds = read_latest(engine.layout, "round").round
        kinds = dataset_of(tables[1]).to_table(columns=["kind"])["kind"].to_pylist()
        assert rounds >= self._rounds, rounds
        return {
            "files": [files],
            "bytes": [of_files],
            "commits": [sum(len(TableLog(table).versions()) for table in tables)],
            "checkpoint": [max(sum(file.stat().st_size for file in each.files) for each in last)],
            "behind": [max(version - each.version for version, each in zip(latest, last))],
            "open": [seconds(lambda: [open_table(table) for table in tables]) for _ in range(5)],
            "rounds": [kinds.count("round")],
            "round": [sum(self._took[-len(self._took) // 10 :]) / (len(self._took) // 10)],
        }
