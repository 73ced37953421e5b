"""Appending until the rows are there, once: after a try that raised before its commit, behind it, or for good."""

import shutil

import pyarrow as pa
import pytest

from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.sure_append import SureAppend
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.store.durability import write_durability
from pulsar_spark.table_specs import REQUESTS
from tests.support.faults import FULL, faults


@pytest.fixture
def table(root, layout) -> SureAppend:
    return SureAppend(layout.broker_table(REQUESTS.name), "request_id")


def rows(*names: str) -> pa.Table:
    return REQUESTS.rows([{"request_id": name, "kind": "flow"} for name in names])


def there(table: SureAppend) -> list[str]:
    return sorted(dataset_of(table.path).to_table(columns=["request_id"])["request_id"].to_pylist())


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("write", range(1, 8))
def test_a_try_that_raised_before_or_behind_its_commit_counts_once(table, write, after):
    others, waits = AppendTable(table.path), []
    others.append(rows("other"))
    with faults(FULL, first=write, after=after, threads={"MainThread"}) as disk:
        version = table.append(rows("b", "a"), waits.append)
    assert (version, there(table)) == (2, ["a", "b", "other"])
    assert [str(failure) for failure in waits] in ([], ["[Errno 28] No space left on device"])
    assert disk.raised or disk.writes < write
    assert table.append(rows("c"), waits.append) == 3


@pytest.mark.local_disk
@pytest.mark.parametrize("write", range(1, 7))
def test_a_commit_that_is_there_though_its_sync_failed_is_not_made_again(table, layout, write):
    """Behind the link comes the sync of the log's folder, which may fail too."""
    write_durability(layout.root, "fsync")
    with faults(FULL, first=write, threads={"MainThread"}) as disk:
        assert table.append(rows("b", "a"), lambda unclear: None) == 1
    assert there(table) == ["a", "b"]
    assert disk.raised or disk.writes < write


@pytest.mark.local_disk
def test_whoever_waits_may_give_up(table):
    def give_up(unclear: Exception) -> None:
        raise TimeoutError from unclear

    with faults(FULL, first=1, count=1_000_000), pytest.raises(TimeoutError):
        table.append(rows("a"), give_up)
    assert there(table) == []


@pytest.mark.local_disk
def test_a_table_that_is_gone_is_not_waited_for(table):
    shutil.rmtree(table.path)
    with pytest.raises(FileNotFoundError):
        table.append(rows("a"), lambda unclear: pytest.fail(f"waited after {unclear}"))
    assert not table.exists()
