"""Messages of small publishes whose files were joined: what comes of many at a time is what comes of each alone,
whatever was deleted, changed, lost or doubled."""

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.missing import Missing
from pulsar_spark.storage.entries.run_slices import read_slice
from pulsar_spark.storage.topics.topics import Topic, create_topic
from pulsar_spark.storage.upkeep.upkeep import optimize
from pulsar_spark.table_specs import MESSAGES
from tests.storage.test_stated_rows import publish

COLUMNS = ["sequence_id", "sticky_key_hash"]


@pytest.fixture
def topic(layout) -> Topic:
    return create_topic(layout, "t")


@pytest.fixture
def runs(topic) -> list[Run]:
    """Publishes of four messages, in entries of one or of two, whose files became one."""
    runs, end = [], 0
    for at in range(12):
        rows = [{"payload": b"%d.%d" % (at, each), "sequence_id": 10 * at + each} for each in range(4)]
        run = publish(topic, *rows, batch_size=1 + at % 2)
        runs.append(run._replace(first_position=end))
        end += run.entries
    optimize(topic.path)
    _vacuum(topic)
    return runs


def _vacuum(topic: Topic) -> None:
    DeltaTable(str(topic.path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The files whose rows were read."""
    found, read_row_group = [], pq.ParquetFile.read_row_group

    def reading(self, *arguments, **options):
        found.append(str(self.reader))
        return read_row_group(self, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", reading)
    return found


def together(topic: Topic, runs: list[Run], first: int, last: int) -> list[tuple]:
    """Ledger, position, batch index and payload of what is between two positions; of missing entries their number."""
    parts = [(run, [(max(first, run.first_position), min(last, run.last_position))]) for run in runs]
    found: list[tuple] = []
    for run, rows in EntryReader(1 << 20).read_all(
        topic.path, [part for part in parts if part[1][0][0] <= part[1][0][1]]
    ):
        found += shown(rows, run)
    return found


def each_alone(topic: Topic, runs: list[Run], first: int, last: int) -> list[tuple]:
    reader, found = EntryReader(1 << 20), list[tuple]()
    for run in runs:
        begin, end = max(first, run.first_position), min(last, run.last_position)
        if begin <= end:
            found += [row for rows in reader.read(topic.path, run, [(begin, end)]) for row in shown(rows, run)]
    return found


def shown(rows, run: Run | None) -> list[tuple]:
    if isinstance(rows, Missing):
        return [(run.ledger_id, rows.messages, rows.is_lost)]
    ledger_ids = rows["ledger_id"].to_pylist() if run is None else [run.ledger_id] * rows.num_rows
    columns = [rows[name].to_pylist() for name in ("position", "batch_index", "payload", "producer_name")]
    return list(zip(ledger_ids, *columns))


def slices(topic: Topic, runs: list[Run]) -> tuple[list, list]:
    """The slice of all, and those of each."""
    of_each = [row for run in runs for row in read_slice(topic.path, [run], COLUMNS).to_pylist()]
    return read_slice(topic.path, runs, COLUMNS).to_pylist(), of_each


def test_a_joined_file_is_decoded_once_for_many_publishes(topic, runs, opened):
    end = runs[-1].last_position
    found = together(topic, runs, 0, end)
    assert len(opened) == 1
    assert [row[3] for row in found] == [b"%d.%d" % (at, each) for at in range(12) for each in range(4)]
    assert found == each_alone(topic, runs, 0, end)


@pytest.mark.parametrize("first,last", [(0, 0), (2, 7), (5, 5), (4, 33), (35, 35)])
def test_of_stretches_nothing_else_comes(topic, runs, first, last):
    found = together(topic, runs, first, last)
    assert found == each_alone(topic, runs, first, last)
    assert sorted({row[1] for row in found}) == [*range(first, last + 1)]


def change(topic: Topic, how: str) -> None:
    table = DeltaTable(str(topic.path))
    if how == "deleted":
        table.delete("sequence_id IN (0, 31, 52, 53)")
    elif how == "changed":
        table.update(updates={"producer_name": "'p'"}, predicate="sequence_id % 3 = 0")
    elif how == "doubled":
        (path,) = topic.path.glob("*.parquet")
        rows = pq.read_table(path, schema=MESSAGES.schema)
        AppendTable(topic.path).append(rows.slice(5, 9))
    elif how == "lost":
        for path in DeltaTable(str(topic.path)).file_uris():
            (topic.path / path.rpartition("/")[2]).unlink()


@pytest.mark.parametrize("how", ["deleted", "changed", "doubled", "lost"])
def test_what_happened_to_some_is_seen(topic, runs, how):
    end = runs[-1].last_position
    before = together(topic, runs, 0, end)
    change(topic, how)
    found = together(topic, runs, 0, end)
    assert found == each_alone(topic, runs, 0, end)
    assert (found == before) == (how == "doubled")
    of_all, of_each = slices(topic, runs)
    assert of_all == of_each and len(of_all) == end + 1


def test_rows_of_runs_in_any_order_and_twice(topic, runs):
    later = publish(topic, {"payload": b"alone", "sequence_id": 7})._replace(first_position=100)
    of_all, of_each = slices(topic, [later, *runs[6:], *runs[:8]])
    assert of_all == of_each
