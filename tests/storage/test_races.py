"""What somebody else does between a look and the write that rests on it: nothing comes back, nothing is lost."""

import os
import time

import pytest
from deltalake import DeltaTable

from pulsar_spark.storage.delta.data_files import file_add
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.scan import dataset_of, open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.upkeep import upkeep
from pulsar_spark.storage.upkeep.joining import files_of, join
from pulsar_spark.table_specs import REQUESTS

pytestmark = pytest.mark.local_disk


@pytest.fixture
def table(tmp_path):
    """A table of four files, a row each."""
    create_table(tmp_path / "t", REQUESTS)
    for number in range(4):
        AppendTable(tmp_path / "t").append(REQUESTS.rows([dict(request_id=str(number))]))
    return tmp_path / "t"


def ids(table) -> list[str]:
    return sorted(dataset_of(table).to_table()["request_id"].to_pylist())


def test_rows_that_are_deleted_before_a_join_is_put_in_place_stay_deleted(table, monkeypatch):
    link, opened = os.link, open_table(table)

    def link_late(*arguments) -> None:
        monkeypatch.setattr(os, "link", link)
        DeltaTable(str(table)).delete("request_id = '1'")
        link(*arguments)

    monkeypatch.setattr(os, "link", link_late)
    assert [size for step in join(table, opened, [files_of(opened)]) for size in step] == []
    assert ids(table) == ["0", "2", "3"]


def test_a_file_that_comes_into_the_table_while_a_vacuum_lists_stays(table, monkeypatch):
    """Such as one that was staged for days before its commit."""
    opened, unseen, listed = open_table(table), upkeep.unseen_files, []
    DeltaTable(str(table)).delete("request_id = '1'")
    (path,) = {file.path for file in files_of(opened)} - {file.path for file in files_of(open_table(table))}
    long_ago = time.time() - 10 * 24 * 60 * 60
    os.utime(table / path, (long_ago, long_ago))

    def unseen_and_restored(*arguments) -> list[str]:
        found = unseen(*arguments)
        if not listed:
            listed.extend(found)
            back = AppendTable(table)
            assert back.replace_files([file_add(table, path)], [], open_table(table).version()) is not None
        return found

    monkeypatch.setattr(upkeep, "unseen_files", unseen_and_restored)
    removed = [each for some in upkeep.remove_unseen(table, time.time() + 1, frozenset()) for each in some]
    assert path in listed and path not in removed and ids(table) == ["0", "1", "2", "3"]
