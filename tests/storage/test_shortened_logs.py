"""A table whose log begins later is known and mended as any other."""

import json
import os
import time

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from pulsar_spark.admin import Admin
from pulsar_spark.errors import CorruptState, LogShortened
from pulsar_spark.storage.delta.checkpoints import checkpoints, make_checkpoint
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import FIRST_COMMIT, TableLog
from pulsar_spark.storage.delta.scan import dataset_of, open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import ledgers_of_topic, read_ledgers
from pulsar_spark.storage.topics.partitions import raise_partitions
from pulsar_spark.storage.topics.topics import create_topic, delete_topic, read_topic
from pulsar_spark.storage.upkeep import shortening
from pulsar_spark.storage.upkeep.housekeeping import Needs, keep_house
from pulsar_spark.storage.upkeep.joining import FILES, files_of, join
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.table_specs import REQUESTS
from tests.broker.hostile import commit_file
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
N = 5


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(shortening, "CHOSEN_SECONDS", 0)


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    """So many publishes, a round each; the log of the topic begins at the last but one."""
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    for number in range(N):
        engine.publish(TOPIC, -1, [1, 2], publish_time_ms=1000 * number, payload=b"%d" % number)
        engine.round([ON.subscribe("A"), ON.flow("A", 1)], number)
        if number == N - 2:
            shortened(engine, TOPIC)
    return engine


def table(engine: SparkEngine, name: str):
    return engine.layout.broker_table(name) if "/" not in name else read_topic(engine.layout, name).path


def shortened(engine: SparkEngine, name: str) -> int:
    """Let the log begin at its end; the version."""
    path = table(engine, name)
    make_checkpoint(path)
    assert sum(shorten(path, TableLog(path).latest(), time.time() + 1)) > 0
    return TableLog(path).earliest()


def positions(layout: Layout, topic_id: str) -> list[tuple]:
    return [(run.ledger_id, run.first_position, run.entries) for run in ledgers_of_topic(layout, topic_id)[-1].runs]


def admin(engine: SparkEngine) -> Admin:
    return Admin(f"delta:{engine.layout.root}")


def test_it_is_known_by_its_first_commit_wherever_that_is(engine):
    path = table(engine, "requests")
    handle, before = AppendTable(path), (read_definition(path), TableLog(path).life())
    for number in range(3):
        handle.append(REQUESTS.rows([dict(request_id=str(number))]))
    shortened(engine, "requests")
    assert not TableLog(path).has(0) and (read_definition(path), TableLog(path).life()) == before
    assert handle.append(REQUESTS.rows([dict(request_id="more")])) == 4
    handle = AppendTable(table(engine, TOPIC))
    delete_topic(engine.layout, TOPIC)
    engine.create_topic(TOPIC)
    with pytest.raises(FileNotFoundError, match="deleted and created again"):
        handle.append(dataset_of(table(engine, TOPIC)).to_table())


def test_what_a_table_is_counts_as_it_was_said_last_whatever_a_shortening_that_was_killed_left(engine):
    """It had kept the first commit, and not removed it yet, when that was replaced."""
    path = create_topic(engine.layout, "parted", 2).path
    log, names = TableLog(path), {*(path / "_delta_log").iterdir()}
    log.keep_first_commit()
    raise_partitions(engine.layout, "parted", 3)
    for _ in range(2):
        log.keep_first_commit()
    assert {*log.folder.iterdir()} == names | {log.folder / FIRST_COMMIT}
    log.file(0).unlink()
    (description,) = (action["metaData"]["description"] for action in log.first_actions() if "metaData" in action)
    assert json.loads(description)["partitions"] == 3


def test_a_commit_that_goes_as_it_is_read_is_one_of_a_shortened_log(engine, monkeypatch):
    path = table(engine, "cursor_ledger")
    log, has = TableLog(path), TableLog.has

    def goes(self, version):
        was_there = has(self, version)
        monkeypatch.setattr(TableLog, "has", has)
        shortened(engine, "cursor_ledger")
        return was_there

    monkeypatch.setattr(TableLog, "has", goes)
    with pytest.raises(LogShortened, match="begin again with the table's present version"):
        list(log.commits(0))


def test_a_first_commit_that_cannot_be_read_is_said_and_without_one_the_table_is_asked(engine):
    path = table(engine, TOPIC)
    kept, before = path / "_delta_log" / FIRST_COMMIT, read_definition(path)
    text = kept.read_text()
    kept.write_text("")
    with pytest.raises(CorruptState, match="its first commit cannot be read"):
        read_definition(path)
    kept.unlink()
    assert TableLog(path).life() is None and read_definition(path) == before
    kept.write_text(text)
    assert admin(engine).doctor() == []


@pytest.mark.parametrize("is_named", [True, False])
def test_numbers_that_were_lost_come_back_as_far_as_the_log_goes(engine, is_named):
    path, topic_id = table(engine, "ledgers"), engine.topic_ids[TOPIC]
    before = positions(engine.layout, topic_id)
    begins = TableLog(table(engine, TOPIC)).earliest()
    lost = [begins, begins + 1] if is_named else [begins - 1, begins + 1]
    assert len(before) == 2 * N, "a run for each size of batch"
    DeltaTable(str(path)).delete(f"ledger_id in ({lost[0]}, {lost[1]})")
    done = admin(engine).repair()
    if is_named:
        assert [each["is_done"] for each in done] == [True] and positions(engine.layout, topic_id) == before
        assert admin(engine).doctor() == [] and admin(engine).repair() == []
        return
    assert [each["is_done"] for each in done] == [False, True]
    assert done[0]["text"].startswith(
        f"positions {2 * (begins - 2)} to {2 * (begins - 2) + 1} of '{TOPIC}' were numbered"
    )
    rows = read_ledgers(path)[0].filter(pc.field("ledger_id") == lost[1])
    assert rows["first_position"].to_pylist() == [first for ledger, first, _ in before if ledger == lost[1]]


def test_a_broken_commit_is_mended_and_nothing_that_left_the_table_comes_back(engine):
    """Files that were joined lie there for a while, and the commits that named them are gone."""
    path = table(engine, TOPIC)
    opened = open_table(path)
    assert list(join(path, opened, [files_of(opened)])) == [[], [N]]
    shortened(engine, TOPIC)
    before = sorted(dataset_of(path).to_table()["payload"].to_pylist())
    engine.publish(TOPIC, -1, [1], payload=b"new")
    file = commit_file(path, TableLog(path).latest())
    written = file.stat().st_mtime_ns
    name = next(add for add in file.read_text().split('"') if add.endswith(".parquet"))
    data = (path / name).read_bytes()
    file.write_text("")
    os.utime(file, ns=(written, written))
    (path / name).unlink()
    [refused] = admin(engine).repair()
    assert not refused["is_done"] and "no file of the table has its rows" in refused["text"]
    (path / name).write_bytes(data)
    os.utime(path / name, ns=(written, written))
    assert [each["is_done"] for each in admin(engine).repair()] == [True]
    assert sorted(dataset_of(path).to_table()["payload"].to_pylist()) == sorted([*before, b"new"])


def test_a_broken_checkpoint_is_mended_where_another_begins_the_log(engine):
    path = table(engine, TOPIC)
    begins = checkpoints(path)[0]
    newest = open_table(path)
    newest.create_checkpoint()
    (path / "_delta_log" / f"{newest.version():020d}.checkpoint.parquet").write_bytes(b"")
    assert [each["is_done"] for each in admin(engine).repair()] == [True]
    assert admin(engine).doctor() == [] and dataset_of(path).count_rows() == 3 * N
    for each in checkpoints(path):
        each.files[0].write_bytes(b"")
    [refused] = admin(engine).repair()
    assert not refused["is_done"] and "restore one from a backup" in refused["text"] and begins.files[0].exists()


def test_the_log_begins_nowhere_earlier_whoever_asks(engine):
    """Delta's own clean-up and ours leave the same."""
    path = table(engine, TOPIC)
    begins = TableLog(path).earliest()
    assert sorted(TableLog(path).versions()) == list(range(begins, begins + 2))
    assert DeltaTable(str(path), version=begins).version() == begins
    with pytest.raises(Exception, match="(?i)version|log"):
        DeltaTable(str(path), version=begins - 1)
    assert [entry["version"] for entry in DeltaTable(str(path)).history()] == [begins + 1, begins]
    assert FILES > N and [
        step.number for step in keep_house(path, lambda: Needs(99), history_seconds=0, time_travel_seconds=60)
    ] == [0]
