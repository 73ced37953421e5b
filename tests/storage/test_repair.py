"""What a power loss or a hand leaves in a root's tables is found, said, and mended where the data is there."""

import json
import os
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_spark.admin import Admin
from pulsar_spark.errors import CorruptState, InvalidConfiguration, NotAllowedError
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.cursor_ledger.requests import read_requests
from pulsar_spark.storage.delta.commits import commit_text
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.ledgers.ledgers import read_ledgers
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.repair.examination import named_files
from pulsar_spark.storage.store.durability import settings_path
from tests.broker.hostile import commit_file
from tests.broker.test_disk import TOPIC, ask, publish
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

ON = On(TOPIC)


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    """Three publishes, three commits of requests, four rounds."""
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    for number in range(3):
        engine.publish(TOPIC, -1, [1, 2], publish_time_ms=0)
        engine.round([ON.subscribe("A"), ON.flow("A", 2)], number)
        ask(engine.layout, ON.flow("A", number + 1))
    return engine


@pytest.fixture
def admin(engine) -> Admin:
    return Admin(f"delta:{engine.layout.root}")


def tables(engine) -> dict:
    return {
        "requests": engine.layout.broker_table("requests"),
        "cursor_ledger": engine.layout.broker_table("cursor_ledger"),
        "ledgers": engine.layout.broker_table("ledgers"),
        TOPIC: engine.layout.topic(engine.rounds.bundle.topic(TOPIC).topic.name),
    }


def cut(text: str) -> list[str]:
    """What may be left of a commit's text."""
    return ["", "\0" * 512, text[: len(text) // 2], text[:-20], text.splitlines()[0] + "\n", "5\n", "no json"]


def state(engine) -> tuple:
    latest = read_latest(engine.layout)
    return (
        latest.round,
        {key: row["mark_delete_position"] for key, row in latest.cursors.items()},
        {key: latest.ranges(key) for key in latest.cursors},
        [commit.rows.to_pylist() for commit in read_requests(tables(engine)["requests"], after=0)],
        read_ledgers(tables(engine)["ledgers"])[0].num_rows,
        sorted(map(str, dataset_of(tables(engine)[TOPIC]).to_table().to_pylist())),
    )


def test_a_sound_root_has_no_findings_and_nothing_is_mended(engine, admin):
    assert admin.doctor() == [] and admin.repair() == []


@pytest.mark.parametrize("how", range(7))
@pytest.mark.parametrize("name", ["requests", "cursor_ledger", "ledgers", TOPIC])
@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_of_which_little_is_left_is_named_and_mended(engine, admin, name, version, how):
    path, before = tables(engine)[name], state(engine)
    file = commit_file(path, version)
    whole, written = file.read_text(), file.stat().st_mtime_ns
    file.write_text(cut(whole)[how])
    os.utime(file, ns=(written, written))
    with pytest.raises(CorruptState, match=f"commit {version} .*pulsar-spark doctor"):
        TableLog(path).commit(version)
    [finding] = admin.doctor()
    found = finding["kind"], finding["table"], finding["version"], finding["command"]
    assert found == ("broken_commit", name, version, "pulsar-spark repair")
    [would] = admin.repair(dry_run=True)
    assert would["is_done"] and file.read_text() == cut(whole)[how]
    [mended] = admin.repair()
    assert mended["is_done"] and mended["files"] == [json.loads(whole.splitlines()[1])["add"]["path"]]
    assert admin.doctor() == [] and state(engine) == before
    [kept] = file.parent.glob(".*.broken-*")
    assert kept.read_text() == cut(whole)[how]


def test_a_commit_that_is_gone_is_mended_too(engine, admin):
    before = state(engine)
    commit_file(tables(engine)["requests"], 2).unlink()
    [finding] = admin.doctor()
    assert finding["version"] == 2 and "missing" in finding["text"]
    admin.repair("requests")
    assert admin.doctor() == [] and state(engine) == before


def test_two_broken_commits_get_their_files_in_order(engine, admin):
    before = state(engine)
    for version in (1, 3):
        file = commit_file(tables(engine)["requests"], version)
        written = file.stat().st_mtime_ns
        file.write_text("")
        os.utime(file, ns=(written, written))
    assert [mended["is_done"] for mended in admin.repair()] == [True, True]
    assert state(engine) == before


def test_what_a_crash_left_is_not_taken_for_what_was_committed(engine, admin):
    """A data file older than the commit before is some crash's; where that cannot be told, the files are named by
    hand."""
    path = tables(engine)["requests"]
    file = commit_file(path, 3)
    name = json.loads(file.read_text().splitlines()[1])["add"]["path"]
    shutil.copy(path / name, path / "part-left-by-a-crash.snappy.parquet")
    file.write_text("")
    [refused] = admin.repair()
    assert not refused["is_done"] and "--file" in refused["text"] and name in refused["text"]
    assert TableLog(path).has(3) and file.read_text() == ""
    [mended] = admin.repair("requests", files=[name])
    assert mended["is_done"] and mended["files"] == [name]
    with pytest.raises(InvalidConfiguration, match="broken commits"):
        admin.repair("requests", files=[name])


@pytest.mark.parametrize("name", ["requests", "cursor_ledger", "ledgers", TOPIC])
def test_what_is_lost_is_said_and_forgotten_only_when_asked(engine, admin, name):
    path = tables(engine)[name]
    file = commit_file(path, 3)
    (path / json.loads(file.read_text().splitlines()[1])["add"]["path"]).unlink()
    file.write_text("")
    [refused] = admin.repair()
    assert not refused["is_done"] and "lost" in refused["text"] and "--forget" in refused["text"]
    forgotten, *more = admin.repair(forget=True)
    assert forgotten["is_done"] and "lost" in forgotten["text"]
    if name == "ledgers":
        assert "numbered again" in more[0]["text"]
    assert admin.doctor() == []
    assert TableLog(path).commit(3).version == 3
    engine.start()
    engine.rounds.take_over()
    assert engine.rounds.bundle.round == 4, "a round that is lost keeps its number"
    engine.publish(TOPIC, -1, [1])
    engine.round([ON.flow("A", 1)], 10)


def test_a_data_file_is_found_by_the_path_that_its_log_escapes(tmp_path):
    write_deltalake(tmp_path, pa.table({"of": ["a b", "c%d"], "n": [1, 2]}), partition_by=["of"])
    DeltaTable(tmp_path).create_checkpoint()
    write_deltalake(tmp_path, pa.table({"of": ["e f"], "n": [3]}), partition_by=["of"], mode="append")
    named = named_files(tmp_path)
    assert len(named) == 3 and all((tmp_path / name).stat().st_size == size for name, size in named.items())


def test_a_lost_data_file_and_a_broken_checkpoint_are_found(engine, admin):
    path = tables(engine)[TOPIC]
    file = json.loads(commit_file(path, 2).read_text().splitlines()[1])["add"]["path"]
    from pulsar_spark.storage.delta.checkpoints import make_checkpoint

    version = make_checkpoint(path)
    broken = path / "_delta_log" / f"{version:020d}.checkpoint.parquet"
    broken.write_bytes(b"")
    [finding] = admin.doctor()
    assert (finding["kind"], finding["command"]) == ("broken_checkpoint", "pulsar-spark repair")
    [mended] = admin.repair(TOPIC)
    assert mended["is_done"] and admin.doctor() == []
    (path / file).unlink()
    [finding] = admin.doctor()
    assert (
        finding["kind"] == "missing_file" and file in finding["text"] and "subscriptions skip-lost" in finding["text"]
    )
    assert finding["command"] == f"pulsar-spark subscriptions skip-lost {TOPIC} -s SUBSCRIPTION"


def spoil_statistics(engine) -> None:
    path = tables(engine)[TOPIC]
    actions = [json.loads(line) for line in commit_file(path, 3).read_text().splitlines()]
    add = next(action["add"] for action in actions if "add" in action)
    commit_file(path, 4).write_text(
        json.dumps({"add": add | {"stats": '{"numRecords": 1, "minValues": {"publish_time": "noon"}}'}})
    )


def ask_for_a_feature(engine) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["f"], "writerFeatures": ["f"]}
    commit_file(tables(engine)[TOPIC], 4).write_text(json.dumps({"protocol": protocol}))


def lose_numbers(engine) -> None:
    path = tables(engine)["ledgers"]
    file = json.loads(commit_file(path, 2).read_text().splitlines()[-1])["add"]["path"]
    commit_file(path, 2).write_text(commit_text([], {}))
    (path / file).unlink()


HARMS = {
    "settings": lambda engine: settings_path(engine.layout.root).write_text("perhaps"),
    "missing_table": lambda engine: shutil.rmtree(tables(engine)["requests"]),
    "definition": lambda engine: commit_file(tables(engine)[TOPIC], 0).write_text(""),
    "foreign_table": lambda engine: write_deltalake(
        str(engine.layout.root / "public/default/foreign"), pa.table({"a": [1]})
    ),
    "broken_commit": lambda engine: commit_file(tables(engine)["requests"], 2).write_text(""),
    "broken_checkpoint": lambda engine: (tables(engine)[TOPIC] / "_delta_log" / "_last_checkpoint").write_text("?"),
    "missing_file": lambda engine: next(tables(engine)["requests"].glob("*.parquet")).unlink(),
    "not_numbered": spoil_statistics,
    "not_numbered, a feature": ask_for_a_feature,
    "ledgers": lose_numbers,
}


@pytest.mark.parametrize("kind", HARMS)
def test_every_finding_says_what_to_do(engine, admin, kind):
    HARMS[kind](engine)
    findings = admin.doctor()
    assert kind.partition(",")[0] in {finding["kind"] for finding in findings}
    assert all(isinstance(finding["command"], str) and finding["command"] for finding in findings)


def test_a_foreign_table_and_a_first_commit_that_is_lost_are_found(engine, admin):
    write_deltalake(str(engine.layout.root / "public/default/foreign"), pa.table({"a": [1]}))
    create = commit_file(tables(engine)[TOPIC], 0)
    whole = create.read_text()
    create.write_text("")
    kinds = {finding["table"].rpartition("/")[2]: finding["kind"] for finding in admin.doctor()}
    assert kinds == {"foreign": "foreign_table", "t": "definition"}
    create.write_text(whole)


def test_nothing_is_mended_while_a_broker_serves(engine, admin):
    commit_file(tables(engine)["requests"], 2).write_text("")
    lease = BundleLease(engine.layout, "somebody")
    lease.take()
    with pytest.raises(NotAllowedError, match="somebody.*stop it first"):
        admin.repair()
    lease.release()
    assert admin.repair()[0]["is_done"]


def test_a_publish_that_a_retry_wrote_again_is_not_mended_twice(engine, admin):
    """A file whose publish id another commit has is a retry's."""
    path = tables(engine)[TOPIC]
    file = json.loads(commit_file(path, 2).read_text().splitlines()[1])["add"]["path"]
    shutil.copy(path / file, path / "part-of-a-retry.snappy.parquet")
    before = state(engine)
    torn = commit_file(path, 3)
    written = torn.stat().st_mtime_ns
    torn.write_text("")
    os.utime(torn, ns=(written, written))
    assert admin.repair()[0]["is_done"] and state(engine) == before
    publish(engine.layout, 77, 1)
    assert admin.doctor() == []
