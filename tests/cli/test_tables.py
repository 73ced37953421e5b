"""Tables on a narrow screen."""

import pytest

from pulsar_spark.cli.common import print_table
from pulsar_spark.storage.topics.topics import create_topic
from tests.support.commands import say

COLUMNS = ["subscription", "letters wait", "redelivered", "out/s", "unacked"]
ROWS = [("billing", 3, 12345, "0.5", None), ("audit", 0, 7, "1.0", 2)]


def printed(capsys, monkeypatch, width: int, rows) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, rows, title="of orders")
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_table_that_fits_is_a_table(capsys, monkeypatch):
    lines = printed(capsys, monkeypatch, 80, ROWS)
    assert lines[0] == "of orders" and len(lines) == 7 and all(column in lines[2] for column in COLUMNS)


def test_a_table_that_would_break_words_is_a_block_a_row(capsys, monkeypatch):
    lines = printed(capsys, monkeypatch, 40, ROWS)
    assert max(map(len, lines)) <= 40 and lines[0] == "of orders"
    assert [line.split() for line in lines[1:7]] == [
        ["subscription", "billing"],
        ["letters", "wait", "3"],
        ["redelivered", "12345"],
        ["out/s", "0.5"],
        ["unacked"],
        [],
    ]
    assert lines[7].split() == ["subscription", "audit"]


@pytest.mark.parametrize("width", [40, 400])
def test_a_table_without_rows_says_so(capsys, monkeypatch, width):
    assert printed(capsys, monkeypatch, width, []) == ["of orders: none"]


LISTS = {
    "set-aside list": "none",
    "dlq waiting": "none",
    "topics list public/other": "none",
    "topics lost t": "none",
    "subscriptions list t": "none",
    "stats t": "no subscriptions",
    "maintain trim --namespace public/other": "none",
}


@pytest.mark.parametrize("command", LISTS)
def test_a_list_of_nothing_says_none_to_people_and_gives_an_empty_one_to_programs(layout, command):
    create_topic(layout, "t")

    def run(*more: str) -> str:
        return say(layout.root, *command.split(), *more)

    assert run().splitlines()[-1] == LISTS[command]
    if LISTS[command] == "none":
        assert run("--json").strip() in ("[]", "")  # "": a line for each


def test_a_heading_may_be_empty(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_table(["", ""], [("topic", "orders")])
    assert "orders" in capsys.readouterr().out
