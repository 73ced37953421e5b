"""A sample for a scheduler gives a job an argument that it does not take, or tasks in a circle."""

import importlib
import re
import runpy
import shlex
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pulsar_spark.jobs.__main__ import job_names

CONF = Path(__file__).parents[2] / "conf"
CRONTAB, DAG_FILE = CONF / "cron" / "crontab", CONF / "airflow" / "pulsar_spark_nightly.py"
_FIELDS = {"minute": 59, "hour": 23, "day": 31, "month": 12, "weekday": 7}


def parsed(words: list[str]) -> tuple[str, Any]:
    """The job that a command runs, and its arguments as the job takes them."""
    name = words[words.index("-m") + 1].removeprefix("pulsar_spark.jobs.")
    assert name in job_names()
    return name, importlib.import_module(f"pulsar_spark.jobs.{name}").parse_arguments(words[words.index("-m") + 2 :])


def cron_commands() -> list[tuple[list[str], str]]:
    """The fields and the command of each line, its variables and dates filled in."""
    variables, found = {}, []
    for line in CRONTAB.read_text(encoding="utf-8").splitlines():
        if assigned := re.fullmatch(r"(\w+)=(.*)", line):
            variables[assigned[1]] = assigned[2]
        elif line and not line.startswith("#"):
            *fields, command = line.split(None, 5)
            assert not re.search(r"(?<!\\)%", command), "cron takes it for the end of the line"
            command = re.sub(r"\$\(date [^)]*\)", "20260131", command)
            found.append((fields, re.sub(r"\$(\w+)", lambda name: variables[name[1]], command)))
    return found


def test_each_line_for_cron_is_one_that_its_job_takes():
    jobs = {}
    for fields, command in cron_commands():
        for field, most in zip(fields, _FIELDS.values(), strict=True):
            assert field == "*" or int(field.removeprefix("*/")) <= most
        words = shlex.split(command.partition(" >> ")[0])
        name, given = parsed(words)
        jobs[name] = given
        assert given.root == "/data/pulsar" and command.endswith(".log 2>&1")
    assert sorted(jobs) == ["broker", "compact", "consume", "maintain", "publish", "reprocess_dead_letters"]
    assert jobs["consume"].available_now and jobs["publish"].app_version == 20260131


@pytest.fixture
def airflow(monkeypatch) -> dict[str, "Operator"]:
    """Stand-ins for what the DAG imports; its tasks by name."""
    tasks: dict[str, Operator] = {}

    class Dag:
        def __init__(self, dag_id: str, **settings: object):
            assert settings["catchup"] is False and settings["max_active_runs"] == 1
            assert settings["default_args"] == {"retries": 3, "retry_delay": timedelta(minutes=5)}

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    class Bash(Operator):
        def __init__(self, **given: str):
            super().__init__(given)
            tasks[given["task_id"]] = self

    names = "airflow", "airflow.providers", "airflow.providers.standard", "airflow.providers.standard.operators"
    for name in (*names, f"{names[-1]}.bash"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["airflow"].DAG = Dag
    sys.modules[f"{names[-1]}.bash"].BashOperator = Bash
    return tasks


class Operator:
    def __init__(self, given: dict):
        self.given, self.before = given, set()

    def __rshift__(self, after):
        for each in after if isinstance(after, list) else [after]:
            each.before.add(self.given["task_id"])
        return after

    def __rrshift__(self, before: list):
        self.before |= {each.given["task_id"] for each in before}
        return self


def test_each_task_of_airflow_is_one_that_its_job_takes(airflow):
    runpy.run_path(str(DAG_FILE))
    jobs = {}
    for name, task in airflow.items():
        command = re.sub(
            r"\{\{ ds(_nodash)? \}\}", lambda day: "20260131" if day[1] else "2026-01-31", task.given["bash_command"]
        )
        assert "{" not in command
        jobs[name] = parsed(shlex.split(command))
        assert jobs[name][0] == name
    assert {name: task.before for name, task in airflow.items()} == {
        "publish": set(),
        "consume": {"publish"},
        "reprocess_dead_letters": {"consume"},
        "compact": {"consume"},
        "maintain": {"reprocess_dead_letters", "compact"},
    }
    assert jobs["publish"][1].app_version == 20260131
    assert jobs["reprocess_dead_letters"][1].job_id == "nightly-2026-01-31"
