"""A checkpoint that is made from the last one and the appends since says what ``deltalake`` reads from the log: no file
twice, none that left the table, and the last number of each transaction."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta import checkpoints
from pulsar_spark.storage.delta.checkpoints import last_checkpoint, make_checkpoint
from pulsar_spark.storage.delta.commits import commit
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog, read_actions
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.table_specs import REQUESTS

pytestmark = pytest.mark.local_disk


@pytest.fixture
def table(tmp_path) -> Path:
    create_table(tmp_path / "t", REQUESTS)
    _append(tmp_path / "t", "first", 1)
    make_checkpoint(tmp_path / "t")
    return tmp_path / "t"


@pytest.fixture
def by_deltalake(monkeypatch) -> list[Path]:
    """The tables whose checkpoints ``deltalake`` made."""
    made: list[Path] = []

    def opened(table: Path) -> DeltaTable:
        made.append(table)
        return open_table(table)

    monkeypatch.setattr(checkpoints, "open_table", opened)
    return made


def _append(table: Path, name: str, number: int) -> int | None:
    return AppendTable(table).append_once(REQUESTS.rows([dict(request_id=name)]), "app", number)


def _files(table: Path) -> list[tuple]:
    rows = open_table(table).get_add_actions()
    names = [field.name for field in rows.schema]
    return sorted(zip(*(rows.column(name).to_pylist() for name in names)), key=str)


def _checkpointed(table: Path) -> list[tuple]:
    """The files by the newest checkpoint, after the commits it covers are gone."""
    by_log = _files(table)
    version = make_checkpoint(table)
    assert last_checkpoint(table)[:2] == (version, len(by_log) + 3), "and a protocol, metadata and a transaction"
    for number in range(version + 1):
        (table / f"_delta_log/{number:020d}.json").unlink()
    assert _files(table) == by_log
    return by_log


def test_it_has_the_files_and_transactions_of_the_appends_since_the_last_one(table, by_deltalake):
    for number in range(2, 8):
        assert _append(table, f"request {number}", number) == number
        if number in (3, 4):
            assert make_checkpoint(table) == number
    assert len(_checkpointed(table)) == 7 and not by_deltalake
    assert open_table(table).transaction_version("app") == 7


def test_a_file_that_left_the_table_or_came_back_makes_it_deltalakes(table, by_deltalake):
    [added] = [action for action in _actions(table, 1) if "add" in action]
    add = added["add"]
    commit(table, [2], [], {}, [{"path": add["path"], "size": add["size"], "partitionValues": {}}])
    make_checkpoint(table)
    assert len(by_deltalake) == 1 and _files(table) == []
    commit(table, [3], [add], {})
    assert len(_checkpointed(table)) == 1 and len(by_deltalake) == 2


def test_a_last_one_that_cannot_be_read_is_named_and_nothing_is_written(table):
    last = table / f"_delta_log/{1:020d}.checkpoint.parquet"
    AppendTable(table).append(REQUESTS.rows([dict(request_id="second")]))
    last.write_bytes(last.read_bytes()[:-20])
    with pytest.raises(CorruptState, match="checkpoint '00000000000000000001.checkpoint.parquet' cannot be read"):
        make_checkpoint(table)
    assert last_checkpoint(table)[0] == 1 and [each.version for each in checkpoints.checkpoints(table)] == [1]


def _actions(table: Path, version: int) -> list[dict]:
    return read_actions(TableLog(table).file(version))
