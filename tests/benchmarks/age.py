"""Does a round take longer the more rounds have been committed before it?

Earlier commits to ``cursor_ledger`` and ``ledgers`` are made up: each adds one small file, as those of rounds do, and says nothing that the round of the
measurement asks about. Roots of all ages stand side by side and their rounds are taken in turns.
"""
import json
import os
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pyarrow.parquet as pq

from pulsar_spark.schemas import CURSOR_LEDGER, LEDGERS, TableSpec
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import prepare_root
from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import Figure
from tests.benchmarks.growth import Built, measure_growth
from tests.benchmarks.round_rig import RoundRig


def measure(bench: Bench) -> Iterator[Figure]:
    def build(rounds: int) -> Built:
        layout = Layout(bench.new_folder(f"age-{rounds}"))
        prepare_root(layout)
        now = datetime.now(timezone.utc)
        _add_commits(layout, CURSOR_LEDGER, rounds, dict(kind="round", round=rounds, round_time=now, requests_version=0, epoch=0, is_snapshot=True))
        _add_commits(layout, LEDGERS, rounds, dict(topic="persistent://public/default/gone", topic_id="gone", partition=-1, ledger_id=1, publish_id="gone",
                                                   first_entry_id=0, first_position=0, entries=1, batch_size=1))
        rig = RoundRig(bench.planner, layout.root)
        topic = rig.create_topic("t")
        return rig, topic, rig.subscribe(topic, 1)

    return measure_growth(bench, "age", "{:,} rounds before", [1, 1000] + ([] if bench.is_quick else [10_000]), build)


def _add_commits(layout: Layout, spec: TableSpec, commits: int, row: dict) -> None:
    """Append *row* so many times, a commit and a file each."""
    table = layout.broker_table(spec.name)
    first = table / "made-up-1.parquet"
    pq.write_table(spec.rows([row]), first)
    for version in range(1, commits + 1):
        path = f"made-up-{version}.parquet"
        if version > 1:
            shutil.copyfile(first, table / path)
        _commit(table, version, path)


def _commit(table: Path, version: int, path: str) -> None:
    added = {"path": path, "partitionValues": {}, "size": os.path.getsize(table / path), "modificationTime": 0, "dataChange": True,
             "stats": json.dumps({"numRecords": 1})}
    info = {"timestamp": 0, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    (table / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n" + json.dumps({"add": added}) + "\n")
