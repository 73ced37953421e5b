"""Chunked messages that are not complete: what ``Admin`` and ``pulsar-spark chunks`` say of them."""

import json

import pytest
from typer.testing import CliRunner

from pulsar_spark.admin import Admin
from pulsar_spark.cli.main import app
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.arriving import arrive


@pytest.fixture
def told(tmp_path):
    """Of nine messages four are complete, two open and three given up; and there are strays."""
    with PlainBroker(tmp_path / "root") as broker:
        create_topic(broker.layout, "t")
        create_topic(broker.layout, "none")
        arrive(
            broker,
            "t",
            *("done:0:2", "open:0:4", "done:1:2", "plain", "open:1:4", "open:1:4"),
            *("gap:0:3", "gap:2:3", "anew:0:2", "anew:0:2", "anew:1:2", "one:0:1"),
            *("open@other:0:2", "stray:3:5", "stray:1:5", "done:1:2", "lies:0:3", "lies:1:4", "lies:9:3"),
            payload=b"SECRET",
        )
        broker.asked()
        yield Admin(f"delta:{tmp_path / 'root'}")


def rows(admin: Admin) -> list[tuple]:
    return [
        (
            each["producerName"],
            each["uuid"],
            each["firstPosition"],
            each["chunks"],
            [(held["first"], held["last"]) for held in each["missing"]],
            each["isOpen"],
        )
        for each in admin.incomplete_chunks("t")
    ]


def test_what_is_incomplete_is_told_with_what_is_missing(told):
    assert rows(told) == [
        ("p", "open", 1, 2, [(2, 3)], True),
        ("p", "gap", 6, 1, [(1, 2)], False),
        ("p", "gap", 7, 1, [(0, 1)], False),
        ("p", "anew", 8, 1, [(1, 1)], False),
        ("other", "open", 12, 1, [(1, 1)], True),
        ("p", "stray", 13, 2, [(0, 0), (2, 2), (4, 4)], False),
        ("p", "done", 15, 1, [(0, 0)], False),
        ("p", "lies", 16, 1, [(1, 2)], False),
        ("p", "lies", 17, 2, [(0, 0), (2, 3)], False),
    ]
    by_place = {each["firstPosition"]: each for each in told.incomplete_chunks("t")}
    assert by_place[1] == {
        "topic": "persistent://public/default/t",
        "producerName": "p",
        "uuid": "open",
        "numChunksFromMsg": 4,
        "totalChunkMsgSize": 20,
        "chunks": 2,
        "missing": [{"first": 2, "last": 3}],
        "firstPosition": 1,
        "lastPosition": 4,
        "isOpen": True,
        "reason": "the chunks after it are missing",
        "since": "2026-01-31T00:01:00+00:00",
    }
    assert [by_place[at]["reason"] for at in (6, 8, 13, 16, 17)] == [
        "the chunk before it is missing",
        "another chunk 0 began the message again",
        "chunk 0 is missing before it",
        "num_chunks_from_msg differs from that of chunk 0",
        "num_chunks_from_msg differs from that of chunk 0",
    ]
    oldest = "2026-01-31T00:01:00+00:00"
    assert told.count_incomplete_chunks("t") == {"messages": 9, "open": 2, "chunks": 12, "since": oldest}
    assert told.count_incomplete_chunks("none") == {"messages": 0, "open": 0, "chunks": 0, "since": None}


def test_the_command_lists_and_counts_and_prints_no_payload(told):
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["chunks", *arguments, "--root", str(told.layout.root)])
        assert result.exit_code == 0, result.output
        return result.output

    lines = run("list", "t", "-n", "2", "--json").splitlines()
    assert [json.loads(line) for line in lines] == list(told.incomplete_chunks("t"))[:2]
    assert json.loads(run("count", "t", "--json")) == told.count_incomplete_chunks("t")
    shown = run("list", "t")
    assert "open" in shown and "stray" in shown and "SECRET" not in shown
    assert "9 incomplete, 2 of them open" in run("count", "t")
    assert "no message is incomplete" in run("list", "none")
