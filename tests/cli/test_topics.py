"""The command line as a user types it: output for people and for programs, errors as one line, exit codes."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from pulsar_spark import Client, MessageId
from pulsar_spark.cli import app
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.policies.policies import POLICIES

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
    assert "3 partitions" in run("topics", "update", "orders", "-p", "3", root=root).stdout
    assert len(json.loads(run("topics", "partitions", "orders", "--json", root=root).stdout)) == 3
    assert "cannot be lowered" in str(run("topics", "update", "orders", "-p", "1", root=root).exception)
    assert run("topics", "delete", "orders", root=root).exit_code == 0
    assert json.loads(run("topics", "list", "--json", root=root).stdout) == []


def test_a_line_that_is_too_big_is_published_in_chunks_on_request(tmp_path):
    lines, root = tmp_path / "lines.txt", tmp_path / "root"
    lines.write_bytes(b"small\n" + b"x" * (6 << 20) + b"\n")
    refused = run("produce", "orders", "--file", str(lines), root=root)
    assert refused.exit_code == 1 and "1 of 2 messages were not published" in str(refused.exception)
    done = json.loads(run("produce", "other", "--file", str(lines), "--chunking", "--json", root=root).stdout)
    assert done["produced"] == 2 and ";" in done["lastMessageId"]


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


def test_a_message_may_have_any_bytes_and_a_key_may_not(tmp_path):
    """An argument's bytes that are no UTF-8 are surrogates to Python."""
    root = tmp_path / "root"
    for wrong in (("--key", "\udcff"), ("--property", "a=\udcff")):
        refused = run("produce", "orders", "x", *wrong, root=root).exception
        assert isinstance(refused, InvalidConfiguration) and "cannot be encoded as UTF-8" in str(refused)
    assert not root.exists()
    assert run("produce", "orders", "k\udcfe\udcff", "--key-separator", "\udcfe", root=root).exit_code == 0
    reader = Client(f"delta:{root}").create_reader("orders", MessageId.earliest)
    message = reader.read_next(1000)
    assert (message.partition_key(), message.data()) == ("k", b"\xff")


@pytest.mark.parametrize("output", ["missing/file", "x" * 300])
def test_payloads_go_to_a_file_that_can_be_written(tmp_path, output):
    root = tmp_path / "root"
    run("produce", "orders", "x", root=root)
    refused = run("consume", "orders", "-s", "s", "--output", str(tmp_path / output), root=root).exception
    assert isinstance(refused, InvalidConfiguration) and "give a file that can be written" in str(refused)


def test_without_a_root_the_usage_names_the_option_and_the_variable():
    done = CliRunner().invoke(app, ["topics", "list"], env={"PULSAR_SPARK_ROOT": None})
    assert done.exit_code == 2
    assert "--root" in done.output


@pytest.mark.parametrize(
    "command",
    [
        ("stats", "orders"),
        ("topics", "describe", "orders"),
        ("subscriptions", "list", "orders"),
        ("consume", "orders", "-s", "billing", "--timeout", "0"),
        ("dlq", "count", "orders", "-s", "billing"),
        ("dlq", "count", "orders", "-s", "billing"),
    ],
)
def test_a_mistyped_root_is_said_and_not_made(tmp_path, command):
    done = run(*command, root=tmp_path / "rooot")
    assert type(done.exception).__name__ in ("TopicNotFound", "NotARoot")
    assert f"'{tmp_path / 'rooot'}' is not a root of pulsar_spark" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_who_publishes_into_a_new_root_is_told_so(tmp_path):
    root = tmp_path / "root"
    assert f"1 message published to orders in the new root '{root}'" in run("produce", "orders", "x", root=root).stdout
    assert "root" not in run("produce", "orders", "x", root=root).stdout


def test_the_version_is_printed(tmp_path):
    assert run("--version", root=tmp_path).stdout == f"pulsar-spark {version('pulsar-spark')}\n"


def test_the_policies_there_are(tmp_path):
    found = {each["policy"]: each for each in json.loads(run("policies", "list", "--json", root=tmp_path).stdout)}
    assert list(found) == list(POLICIES)
    assert (found["ttl_check_seconds"]["default"], found["ttl_check_seconds"]["values"]) == (
        60,
        "a whole number from 1 to 1000000000",
    )
    assert "producer_exception" in found["backlog_quota_policy"]["values"]
    assert "retention_seconds" in run("policies", "list", root=tmp_path).stdout


def test_a_negative_number_is_a_value_and_no_option(tmp_path):
    root = tmp_path / "root"
    run("topics", "create", "orders", root=root)
    refused = run("policies", "set", TOPIC, "message_ttl_seconds", "-5", root=root)
    assert str(refused.exception) == "policy message_ttl_seconds: '-5' is not a whole number from 0 to 1000000000"
    waits = run("policies", "set", TOPIC, "retention_seconds", "-1", "--timeout", "0", root=root)
    assert type(waits.exception).__name__ == "Timeout", "taken, and no broker is there to answer"
    assert run("policies", "set", TOPIC, "retention_seconds", "-1", "--tiemout", "0", root=root).exit_code == 2
