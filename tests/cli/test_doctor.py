"""``doctor``, ``repair``, ``durability`` and ``broker status`` as commands: what they print, and their exit codes."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import pulsar_spark
from pulsar_spark.cli import app
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.store.durability import ENVIRONMENT
from pulsar_spark.table_specs import LAYOUT_VERSION, REQUESTS


@pytest.fixture(autouse=True)
def new_roots_are_durable(monkeypatch):
    """As outside of tests."""
    monkeypatch.delenv(ENVIRONMENT)


@pytest.fixture
def run(layout):
    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, [*arguments, "--root", str(layout.root)])
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    return run


def test_doctor_and_repair(run, layout):
    assert run("doctor").strip() == f"sound, layout {LAYOUT_VERSION}"
    table = layout.broker_table("requests")
    version = AppendTable(table).append(REQUESTS.rows([dict(request_id="r")]))
    commit = table / "_delta_log" / f"{version:020d}.json"
    commit.write_text("")
    [finding] = json.loads(run("doctor", "--json", code=1))
    found = finding["kind"], finding["table"], finding["command"]
    assert found == ("broken_commit", "requests", "pulsar-spark repair")
    assert "pulsar-spark repair" in re.sub(r"[\s│]+", " ", run("doctor", code=1))
    assert "would be repaired" in run("repair", "--dry-run")
    [mended] = json.loads(run("repair", "requests", "--json"))
    assert mended["is_done"] and len(mended["files"]) == 1
    assert run("repair").strip() == "nothing to repair"
    (table / mended["files"][0]).unlink()
    commit.write_text("")
    assert "--forget" in run("repair", code=1)
    assert "lost" in run("repair", "--forget")
    assert run("doctor").strip() == f"sound, layout {LAYOUT_VERSION}"


def test_a_commit_that_the_disk_does_not_give_is_named_and_mended(run, layout):
    """A folder in its place, as every other error of reading it."""
    run("doctor")
    table = layout.broker_table("requests")
    version = AppendTable(table).append(REQUESTS.rows([dict(request_id="r")]))
    commit = table / "_delta_log" / f"{version:020d}.json"
    commit.unlink()
    commit.mkdir()
    [finding] = json.loads(run("doctor", "--json", code=1))
    assert (finding["kind"], finding["version"]) == ("broken_commit", version) and "directory" in finding["text"]
    run("repair")
    assert run("doctor").strip() == f"sound, layout {LAYOUT_VERSION}"


def test_durability(run):
    assert run("durability", "get").strip() == "fsync"
    run("durability", "set", "none")
    assert json.loads(run("durability", "get", "--json")) == {"durability": "none"}


def test_broker_status_has_an_exit_code(run, layout):
    assert "no broker" in run("broker", "status", code=3)
    assert json.loads(run("broker", "status", "--json", code=3)) == {}
    lease = BundleLease(layout, "somebody")
    lease.take()
    assert "somebody serves" in run("broker", "status")
    found = json.loads(run("broker", "status", "--json"))
    assert found["broker_id"] == "somebody" and 0 < found["lease_ms"] <= 10_000
    lease.release()
    run("broker", "status", code=3)


def test_a_root_that_is_not_there_yet_has_no_broker(tmp_path, root):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("something else")
    (tmp_path / "other" / "things").mkdir(parents=True)
    Layout(tmp_path / "begun").broker_table("cursor_ledger").mkdir(parents=True)
    for name, code in {"nowhere": 3, "empty": 3, "begun": 3, "root": 3, "file": 1, "other": 1}.items():
        done = CliRunner().invoke(app, ["broker", "status", "--root", str(tmp_path / name)])
        assert done.exit_code == code, name
        assert code == 1 or "no broker serves" in done.stdout
        assert ("not a root yet" in done.stdout) == (name in ("nowhere", "empty", "begun"))
    assert not (tmp_path / "nowhere").exists()


def test_a_broker_without_a_root_is_wrong_usage(monkeypatch):
    monkeypatch.delenv("PULSAR_SPARK_ROOT", raising=False)
    done = CliRunner().invoke(app, ["broker"])
    assert done.exit_code == 2 and "--root" in done.output


def test_every_command_that_a_message_names_is_there():
    package, named = Path(pulsar_spark.__file__).parent, 0
    for path in package.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"run doctor\b", text), f"{path}: say which command"
        for words in re.findall(r"pulsar-spark ((?:[a-z]+[ '`.,:;)\"])+)", text):
            words = re.findall(r"[a-z]+", words)
            group = typer.main.get_command(app).commands
            assert words[0] in group, f"{path} names 'pulsar-spark {' '.join(words)}'"
            inner = getattr(group[words[0]], "commands", {})
            is_alone = len(words) == 1 or words[0] == "broker"
            assert not inner or is_alone or words[1] in inner, f"{path} names 'pulsar-spark {' '.join(words)}'"
            named += 1
    assert named > 10
