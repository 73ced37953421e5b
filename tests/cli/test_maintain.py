"""``pulsar-spark maintain`` and the scheduled job do the same: trim, optimize, vacuum, checkpoint, or only say what
they would."""

import json

import pytest
from deltalake import DeltaTable

from pulsar_spark.jobs import maintain
from pulsar_spark.storage.topics.topics import read_topic
from tests.cli.test_topics import run
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC, OTHER = "persistent://public/default/t", "persistent://public/other/p"


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    """Three ledgers, of which a subscription has acknowledged the first; and a partitioned topic in another
    namespace."""
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    engine.create_topic(OTHER, 2)
    for _ in range(3):
        engine.publish(TOPIC, -1, [1, 1])
    engine.round([On(TOPIC).create_subscription("Earliest"), On(TOPIC).ack(0, 2)], 1)
    engine.round([On(TOPIC).ack(0, 2)], 2)
    return engine


def files(engine: SparkEngine) -> int:
    return len(DeltaTable(str(read_topic(engine.layout, TOPIC).path)).file_uris())


def say(engine: SparkEngine, *arguments: str) -> list[dict]:
    done = run("maintain", *arguments, "--json", root=engine.layout.root)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_trim(engine):
    (row,) = say(engine, "trim", TOPIC, "--dry-run")
    assert (row.pop("bytes") > 0, row) == (
        True,
        {"topic": TOPIC, "first_position": 2, "files": 1, "kept_by": "subscription s"},
    )
    assert files(engine) == 3
    shown = run("maintain", "trim", TOPIC, "--dry-run", root=engine.layout.root).stdout
    assert shown.endswith("dry run: nothing was changed\n")
    assert [row["topic"] for row in say(engine, "trim")] == [TOPIC, f"{OTHER}-partition-0", f"{OTHER}-partition-1"]
    assert files(engine) == 2
    assert [row["files"] for row in say(engine, "trim", "--namespace", "public/default")] == [0]


def test_trim_refuses_what_is_needed_and_positions_of_several_partitions(engine):
    refused = run("maintain", "trim", TOPIC, "--before", "4", root=engine.layout.root)
    assert (type(refused.exception).__name__, files(engine)) == ("NotAllowedError", 3)
    assert (
        type(run("maintain", "trim", OTHER, "--before", "1", root=engine.layout.root).exception).__name__
        == "InvalidConfiguration"
    )
    assert say(engine, "trim", f"{OTHER}-partition-1", "--before", "0")[0]["files"] == 0


def test_optimize_vacuum_and_checkpoint_reach_topics_and_broker_tables(engine):
    tables = [TOPIC, OTHER, "requests", "cursor_ledger", "ledgers"]
    assert [row["table"] for row in say(engine, "optimize", "--dry-run")] == tables
    assert files(engine) == 3
    assert say(engine, "optimize", TOPIC) == [{"table": TOPIC, "files_removed": 3, "files_added": 1}]
    assert [row["table"] for row in say(engine, "vacuum", "--hours", "1")] == tables
    assert [row["table"] for row in say(engine, "checkpoint", "--namespace", "public/other")] == [OTHER]
    assert (read_topic(engine.layout, TOPIC).path / "_delta_log/_last_checkpoint").exists() is False
    assert run("maintain", "checkpoint", root=engine.layout.root).exit_code == 0
    assert (read_topic(engine.layout, TOPIC).path / "_delta_log/_last_checkpoint").exists()


def test_the_job_does_what_it_is_asked_for(engine, capsys):
    def job(*arguments: str) -> list[dict]:
        maintain.main(["--root", str(engine.layout.root), *arguments])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert job() == []
    steps = ["--trim", "--optimize", "--vacuum-hours", "24", "--checkpoint"]
    assert [each["step"] for each in job(*steps, "--dry-run")] == ["trim", "optimize", "vacuum"]
    assert files(engine) == 3
    assert [each["step"] for each in job(*steps)] == ["trim", "optimize", "vacuum", "checkpoint"]
    assert files(engine) == 1
    engine.round([On(TOPIC).subscribe("A"), On(TOPIC).flow("A", 9)], 3)
    assert sorted(engine.state(TOPIC, -1, "s")["pending"]) == [3, 4, 5]


def test_a_folder_that_is_no_root_is_refused(tmp_path):
    assert type(run("maintain", "optimize", root=tmp_path / "none").exception).__name__ == "NotARoot"
