"""The command line as a user types it: output for people and for programs, errors as one line, exit codes."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pulsar_spark.cli import app

TOPIC = "persistent://public/default/orders"


def run(*arguments, root):
    return CliRunner().invoke(app, arguments, env={"PULSAR_SPARK_ROOT": str(root)})


def test_topics_from_creation_to_deletion(tmp_path):
    root = tmp_path / "root"
    assert run("topics", "create", "orders", "-p", "2", root=root).exit_code == 0
    assert json.loads(run("topics", "list", "--json", root=root).stdout) == [{"topic": TOPIC, "partitions": 2}]
    assert TOPIC in run("topics", "list", "public/default", root=root).stdout
    described = json.loads(run("topics", "describe", "orders", "--json", root=root).stdout)
    assert (described["topic"], described["partitions"], described["messages"]) == (TOPIC, 2, {"0": 0, "1": 0})
    assert json.loads(run("topics", "partitions", "orders", "--json", root=root).stdout) == [
        {"partition": 0, "messages": 0},
        {"partition": 1, "messages": 0},
    ]
    assert json.loads(run("subscriptions", "list", "orders", "--json", root=root).stdout) == []
    assert json.loads(run("stats", "orders", "--json", root=root).stdout)["msgInCounter"] == 0
    assert json.loads(run("policies", "get", "public/default", "--json", root=root).stdout) == {}
    for people in (("topics", "describe", "orders"), ("topics", "partitions", "orders"), ("stats", "orders")):
        assert run(*people, root=root).exit_code == 0
    assert run("topics", "delete", "orders", root=root).exit_code == 0
    assert json.loads(run("topics", "list", "--json", root=root).stdout) == []


def test_more_lines_than_a_producer_holds_at_once_are_published(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"key-{number}:line\n" for number in range(25_000)))
    done = run("produce", "orders", "--file", str(lines), "--key-separator", ":", "--json", root=tmp_path / "root")
    assert done.stderr == ""
    assert json.loads(done.stdout)["produced"] == 25_000
    assert json.loads(run("topics", "partitions", "orders", "--json", root=tmp_path / "root").stdout) == [
        {"partition": -1, "messages": 25_000}
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("topics", "describe", "nothing"),
            1,
            "TopicNotFound: topic 'persistent://public/default/nothing' does not exist",
        ),
        (("topics", "create", "../evil"), 1, "InvalidTopicName"),
        (("subscriptions", "seek", "t", "-s", "s", "--to", "yesterday"), 1, "InvalidConfiguration: --to 'yesterday'"),
        (
            ("consume", "t", "-s", "s", "-t", "KeyedShared"),
            1,
            "InvalidConfiguration: --subscription-type 'KeyedShared'",
        ),
        (("produce", "t", "-p", "novalue", "x"), 1, "InvalidConfiguration: property 'novalue'"),
        (("clear-backlog", "t"), 2, "No such command"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(layout, arguments, code, said):
    done = subprocess.run(
        [sys.executable, "-m", "pulsar_spark.cli", *arguments, *([] if code == 2 else ["--root", str(layout.root)])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_root_the_usage_names_the_option_and_the_variable():
    done = CliRunner().invoke(app, ["topics", "list"], env={"PULSAR_SPARK_ROOT": None})
    assert done.exit_code == 2
    assert "--root" in done.output
