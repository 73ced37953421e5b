"""``pulsar-spark dlq`` over hand-made letters: listed, counted, tried out, sent back; no payload is printed."""

import json
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from pulsar_spark.broker.committing.round_rows import rows_of_round
from pulsar_spark.cli import app
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.storage.cursor_ledger.reprocessing import Reprocessing
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import find_or_create_topic, read_topic
from pulsar_spark.table_specs import REPROCESSING
from tests.support.commands import say
from tests.support.letters import LETTERS, RECONSUMED, REDELIVERED, SUBSCRIPTION, TOPIC, WRITTEN, write_letters

SECRET = "the payload nobody prints"


@pytest.fixture
def dlq(spark, layout, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def run(command, *arguments):
        return say(layout.root, "dlq", command, *arguments)

    return run


def test_letters_are_listed_counted_and_sent_back(dlq, layout, tmp_path, monkeypatch):
    write_letters(layout, range(1, 4), payload=SECRET.encode())
    (tmp_path / "repairs.py").write_text("def all_but_the_first(letters):\n    return letters.filter('position > 0')\n")
    monkeypatch.syspath_prepend(tmp_path)
    job = ("orders", "-s", SUBSCRIPTION, "--job-id", "j", "--fix", "repairs:all_but_the_first", "--to", "origin")
    tried = json.loads(dlq("reprocess", *job, "--dry-run", "--json"))
    assert (tried["is_dry_run"], tried["selected"], tried["dropped_by_fix"], tried["sent"]) == (True, 3, 1, 0)
    assert TableLog(read_topic(layout, TOPIC).path).latest() == 0
    said = dlq("reprocess", *job)
    assert "2 of 3 letters sent" in said and f"3 to {TOPIC}" in said
    lines = dlq("list", LETTERS, "--json", "--where", "cause = 'max_reconsume_times'") + dlq(
        "list", LETTERS, "--json", "-n", "1"
    )
    listed = [json.loads(line) for line in lines.splitlines()]
    assert [(row["message_id"], row["cause"], row["size"], row["sent_by"]) for row in listed] == [
        ("(1,0,-1,-1)", RECONSUMED, len(SECRET), None),
        ("(1,2,-1,-1)", RECONSUMED, len(SECRET), "j"),
        ("(1,0,-1,-1)", RECONSUMED, len(SECRET), None),
    ]
    counted = json.loads(dlq("count", LETTERS, "--json"))
    assert [(row["cause"], row["letters"], row["sent"]) for row in counted] == [(RECONSUMED, 2, 1), (REDELIVERED, 1, 1)]
    people = dlq("list", LETTERS) + dlq("count", LETTERS)
    assert REDELIVERED in people
    assert SECRET not in said + lines + people
    assert listed[0]["publish_time"].endswith("+00:00")
    assert listed[0]["properties"]["colour"] == "red"
    assert not any("payload" in row for row in listed)


def test_without_a_letter_there_is_nothing_to_list_count_or_send(dlq, layout):
    find_or_create_topic(layout, TOPIC, 2)
    for where in (("orders", "-s", SUBSCRIPTION), (LETTERS,)):
        assert dlq("list", *where, "--json") == ""
        assert json.loads(dlq("count", *where, "--json")) == []
        assert json.loads(dlq("reprocess", *where, "--job-id", "j", "--json"))["matched"] == 0
        assert dlq("reprocess", *where, "--job-id", "j") == "job j: 0 of 0 letters sent\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("list", "--where", "shape = 1"), "shape"),
        (("reprocess", "--job-id", "j", "--since", "yesterday"), "--since 'yesterday'"),
        (("reprocess", "--job-id", "j", "--fix", "nowhere:f"), "nowhere"),
        (("reprocess", "--job-id", "j", "--to", "x"), "'x'"),
    ],
)
def test_what_cannot_be_is_named(dlq, layout, arguments, says):
    write_letters(layout, range(1))
    command, *options = arguments
    with pytest.raises(InvalidConfiguration, match=says):
        dlq(command, LETTERS, *options)


def test_without_letters_no_spark_is_started_and_an_unknown_subscription_is_refused(layout, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("Spark is started")

    monkeypatch.setattr("pulsar_spark.storage.session.spark_session", refuse)
    topic = find_or_create_topic(layout, TOPIC, 0)
    row = {"kind": "cursor", "topic": TOPIC, "topic_id": topic.topic_id, "partition": -1, "subscription": "billing"}
    AppendTable(layout.broker_table("cursor_ledger")).append(
        rows_of_round(1, [{"kind": "round"}, row | {"mark_delete_position": -1, "read_position": 0}], [])
    )

    def run(*arguments):
        return CliRunner().invoke(app, ["dlq", *arguments, "--root", str(layout.root)])

    assert run("count", "orders", "-s", "billing").stdout == run("list", "orders", "-s", "billing").stdout == "none\n"
    assert json.loads(run("count", "orders", "-s", "billing", "--json").stdout) == []
    for command in (["list"], ["count"], ["reprocess", "--job-id", "j"]):
        refused = run(*command, "orders", "-s", "biling").exception
        assert type(refused).__name__ == "SubscriptionNotFound"
        assert "no subscription 'biling'" in str(refused) and "it has billing" in str(refused)


def test_letters_are_counted_without_spark(layout, monkeypatch):
    monkeypatch.setattr("pulsar_spark.storage.session.spark_session", None)
    write_letters(layout, range(1, 4))
    write_letters(layout, range(8, 10), uuid="u", num_chunks_from_msg=2, total_chunk_msg_size=2, chunk_id=1)
    write_letters(layout, range(20, 21), uuid="v", num_chunks_from_msg=2, total_chunk_msg_size=2, chunk_id=0)
    write_letters(layout, range(30, 31), properties=[("colour", "red")])
    table, topic = Reprocessing(layout), read_topic(layout, LETTERS)
    table.create()
    row = {"kind": "sent", "topic": LETTERS, "topic_id": topic.topic_id, "message_id": "(1,0,-1,-1)"}
    AppendTable(table.path).append(
        REPROCESSING.rows([row | {"job_id": job, "cause": RECONSUMED} for job in ("first", "second")])
    )
    counted = json.loads(say(layout.root, "dlq", "count", "orders", "-s", SUBSCRIPTION, "--json"))
    assert counted == [
        {
            "cause": cause,
            "letters": letters,
            "sent": sent,
            "firstTime": (WRITTEN + timedelta(minutes=first)).isoformat(),
            "lastTime": (WRITTEN + timedelta(minutes=last)).isoformat(),
        }
        for cause, letters, sent, first, last in (
            (RECONSUMED, 3, 1, 1, 9),
            (REDELIVERED, 2, 0, 2, 8),
            ("unknown", 1, 0, 30, 30),
        )
    ]
