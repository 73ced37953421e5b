"""Reading requests: whole commits, in order, and not too many at a time."""

from pulsar_spark.storage.cursor_ledger import requests as requests_module
from pulsar_spark.storage.cursor_ledger.requests import read_requests
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.table_specs import REQUESTS


def test_a_backlog_of_requests_is_read_in_parts_of_whole_commits(root, monkeypatch):
    prepare_root(Layout(root))
    path = Layout(root).broker_table("requests")
    table = AppendTable(path)
    for commit, size in enumerate([3, 1, 2, 9, 1]):
        table.append(REQUESTS.rows([{"request_id": f"{commit}-{row}", "kind": "keep_alive"} for row in range(size)]))
    monkeypatch.setattr(requests_module, "MOST_ROWS", 5)
    read, version = [], 0
    while version < 5:
        commits = read_requests(path, after=version)
        version = commits[-1].version
        read.append([name[0] for commit in commits for name in commit.rows["request_id"].to_pylist()])
    assert read == [["0"] * 3 + ["1"], ["2"] * 2, ["3"] * 9, ["4"]]
    assert read_requests(path, after=version) == []
