"""The jobs under spark-submit with the settings file: publish files, run a broker, write a subscription to a table."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pulsar_spark.jobs import consume
from pulsar_spark.jobs.__main__ import job_names
from pulsar_spark.jobs.__main__ import main as jobs_main
from pulsar_spark.storage.cursor_ledger.reprocessing import Reprocessing
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import is_committed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.spark.session_jars import delta_artifact
from pulsar_spark.storage.topics.topics import create_topic, prepare_root, read_topic
from tests.support.letters import SUBSCRIPTION, TOPIC, write_letters
from tests.support.waiting import eventually

PROJECT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYSPARK_PYTHON": sys.executable}
"""As in an activated virtual environment."""
JOBS = job_names()
SUBMIT = [str(BIN / "spark-submit"), "--properties-file", str(PROJECT / "conf" / "spark-defaults.conf")]


def submitted(job, *arguments):
    return [*SUBMIT, str(PROJECT / "jobs" / f"{job}.py"), *arguments]


logs: list[str] = []
"""What the job that ran last said on standard error."""


def run(job, *arguments):
    done = subprocess.run(
        submitted(job, *arguments),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    logs[:] = done.stderr.splitlines()
    return done.stdout


@pytest.mark.parametrize("job", JOBS)
def test_a_job_says_how_it_is_used(job, capsys):
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"pulsar_spark.jobs.{job}").main(["--help"])
    assert ended.value.code == 0 and "--root" in capsys.readouterr().out


def test_each_job_has_a_file_for_spark_submit():
    files = {path.stem: path.read_text(encoding="utf-8") for path in (PROJECT / "jobs").glob("*.py")}
    assert sorted(files) == JOBS
    assert {text.replace(f"jobs.{job}", "jobs.NAME") for job, text in files.items()} == {
        files["consume"].replace("jobs.consume", "jobs.NAME")
    }


def test_the_list_of_jobs_says_where_spark_submit_finds_them(capsys):
    jobs_main([])
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == JOBS and all(line.endswith(".") for line in listed)
    jobs_main(["consume"])
    assert Path(capsys.readouterr().out.strip()) == Path(consume.__file__)
    jobs_main(["--properties", "--root", "s3://bucket/folder"])
    given = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert given["spark.jars.packages"].startswith(delta_artifact()) and "hadoop-aws" in given["spark.jars.packages"]
    assert given["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"


@pytest.mark.long
@pytest.mark.parametrize("way", [["-m", "pulsar_spark.jobs.consume"], [str(PROJECT / "jobs" / "consume.py")]])
def test_a_job_starts_as_a_module_and_as_a_file(way):
    done = subprocess.run(
        [sys.executable, *way, "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=PROJECT,
        env={**ENVIRONMENT, "PYTHONPATH": str(PROJECT)},
    )
    assert done.returncode == 0 and "--root" in done.stdout, done.stderr


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "orders.json"
    path.write_text("\n".join(json.dumps({"order": number, "customer": f"c{number % 3}"}) for number in range(50)))
    return path


@pytest.mark.java
def test_from_files_through_a_topic_into_a_table(tmp_path, rows):
    root, target, log = tmp_path / "root", tmp_path / "target", tmp_path / "broker.log"
    publish = (
        "--root",
        str(root),
        "--topic",
        "orders",
        "--source",
        str(rows),
        "--format",
        "json",
        "--key",
        "customer",
        "--app-id",
        "orders",
        "--app-version",
        "1",
    )
    assert "50 messages published to orders" in run("publish", *publish)
    assert is_committed(read_topic(Layout(root), "orders").path, "orders", 1), "who runs it again publishes nothing"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            submitted("broker", "--root", str(root)),
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=ENVIRONMENT,
        ) as broker,
    ):
        try:
            lake = ("--root", str(root), "--topic", "orders", "--subscription", "lake", "--target", str(target))
            assert eventually(lambda: b" serves " in log.read_bytes(), 600), log.read_text()
            said = run("consume", *lake, "--available-now")
            assert any("(Exclusive); a new subscription starts at Earliest" in line for line in logs)
            assert " INFO " not in said
            assert f"done: 50 messages of orders lake acknowledged, 50 rows written to {target}" in said
            end_a_service(tmp_path / "consume.log", *lake)
        finally:
            broker.send_signal(signal.SIGTERM)
            code = broker.wait(90)
    assert code in (0, 128 + signal.SIGTERM), log.read_text()[-2000:]
    written = dataset_of(target).to_table(columns=["payload", "partition_key"]).to_pylist()
    assert sorted((json.loads(row["payload"])["order"], row["partition_key"]) for row in written) == [
        (number, f"c{number % 3}") for number in range(50)
    ]


def end_a_service(log, *arguments):
    """Start the consume job, and end its process group when it consumes, as a service manager does."""
    with log.open("wb") as output:
        job = subprocess.Popen(
            [sys.executable, str(PROJECT / "jobs" / "consume.py"), *arguments],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env={**ENVIRONMENT, "PYTHONPATH": str(PROJECT)},
            start_new_session=True,
        )
    deadline = time.monotonic() + 600
    while " consumes (" not in log.read_text() and time.monotonic() < deadline and job.poll() is None:
        time.sleep(0.1)
    os.killpg(job.pid, signal.SIGTERM)
    assert job.wait(60) == 0, log.read_text()
    assert "stopped: 0 messages of orders lake acknowledged, 0 rows written" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.java
def test_a_nightly_run_without_a_dead_letter_ends_with_0(tmp_path):
    layout = Layout(tmp_path / "root")
    prepare_root(layout)
    create_topic(layout, "orders")
    said = run(
        "reprocess_dead_letters",
        "--root",
        str(layout.root),
        "--topic",
        "orders",
        "--subscription",
        "billing",
        "--job-id",
        "j",
        "--json",
    )
    report = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert (report["matched"], report["sent"], report["causes"]) == (0, 0, {})


@pytest.mark.java
def test_dead_letters_are_sent_back(tmp_path):
    """By the job that is named; the same again sends nothing (tests.frames.test_dead_letters)."""
    layout = Layout(tmp_path / "root")
    prepare_root(layout)
    write_letters(layout, range(4))
    arguments = (
        "--root",
        str(layout.root),
        "--topic",
        "orders",
        "--subscription",
        SUBSCRIPTION,
        "--job-id",
        "2024-05-02",
        "--where",
        "attempts > 0",
        "--until",
        "2024-05-01T00:03:00Z",
        "--to",
        "origin",
        "--json",
    )
    report = json.loads(run("reprocess_dead_letters", *arguments).splitlines()[-1])
    assert (report["matched"], report["sent"]) == (2, 2)
    assert Reprocessing(layout).read_job("2024-05-02").settings["to"] == "origin"
    sent = dataset_of(read_topic(layout, TOPIC).path).to_table(columns=["payload", "partition"]).to_pylist()
    assert sorted((row["payload"], int(row["partition"])) for row in sent) == [(b"1", 1), (b"2", 0)]
