"""What publish commits say of the entries in small files, and what only the files do."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.actions import ENGINE
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries import entries
from pulsar_spark.storage.entries.run_slices import read_slice
from pulsar_spark.storage.entries.stated_values import MOST_ENTRIES, common_values, lower_bounds
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.topics.topics import Topic, create_topic
from pulsar_spark.table_specs import MESSAGES

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
COLUMNS = ("sticky_key_hash", "deliver_at_time", "uuid", "chunk_id")


@pytest.fixture
def topic(layout) -> Topic:
    return create_topic(layout, "t")


def publish(topic: Topic, *messages: dict, batch_size: int = 1) -> Run:
    """A publish of entries of so many messages each, as a run."""
    log = TableLog(topic.path)
    place = {"publish_id": f"{log.latest():032x}", "batch_size": batch_size, "partition": -1, "publish_time": NOON}
    rows = [{**place, "entry_id": at // batch_size, **said} for at, said in enumerate(messages)]
    return numbered(topic, AppendTable(topic.path).append(MESSAGES.rows(rows)))


def numbered(topic: Topic, version: int) -> Run:
    ((run,),) = number_commit(topic.path, TableLog(topic.path).commit(version), {}, set()).values()
    return run


def said(topic: Topic, *runs: Run) -> list[tuple | None]:
    return common_values(topic.path, runs, COLUMNS)


@pytest.mark.parametrize(
    "values",
    [
        (7, NOON, "u", 0),
        (None, None, None, None),
        (0, NOON - timedelta(days=40_000), "", 2**31 - 1),
        (-(2**31), datetime(9999, 12, 31, 23, tzinfo=UTC), "ü" * 256, -1),
        (None, NOON + timedelta(milliseconds=999), "u" * 33, None),
    ],
)
def test_of_one_message_everything_is_said(topic, values):
    run = publish(topic, dict(zip(COLUMNS, values)))
    assert said(topic, run) == [values]
    assert publish_rows(topic, run) == [(0, *values)]


def publish_rows(topic: Topic, run: Run) -> list[tuple]:
    return [(*row.values(),) for row in read_slice(topic.path, [run], COLUMNS).to_pylist()]


def test_a_batch_whose_messages_agree_is_said_too(topic):
    run = publish(topic, *[{"sticky_key_hash": 7, "batch_index": at} for at in range(3)], batch_size=3)
    assert said(topic, run) == [(7, None, None, None)]


@pytest.mark.parametrize(
    "messages",
    [
        [{"sticky_key_hash": 7}, {"sticky_key_hash": 8}],
        [{"sticky_key_hash": 7}, {}],
        [{"deliver_at_time": NOON + timedelta(microseconds=1)}],
        [{"deliver_at_time": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)}],
        [{"deliver_at_time": datetime.min.replace(tzinfo=UTC)}],
        [{"uuid": "u" * 257}],
    ],
)
def test_what_differs_or_is_rounded_is_not(topic, messages):
    run = publish(topic, *messages)
    assert said(topic, run) == [None]
    assert len(publish_rows(topic, run)) == len(messages)


def test_what_another_writer_says_is_not_believed(topic):
    """It may round both bounds to the same."""
    run = publish(topic, {"sticky_key_hash": 7})
    file = TableLog(topic.path).file(run.ledger_id)
    file.write_text(file.read_text().replace(ENGINE, "delta-rs"))
    assert said(topic, run) == [None] and publish_rows(topic, run) == [(0, 7, None, None, None)]


def test_a_commit_that_is_gone_or_broken_says_nothing(topic):
    gone, broken = (publish(topic, {"sticky_key_hash": at}) for at in (1, 2))
    log = TableLog(topic.path)
    log.file(gone.ledger_id).unlink()
    log.file(broken.ledger_id).write_bytes(log.file(broken.ledger_id).read_bytes()[:-40])
    assert said(topic, gone, broken) == [None, None]


@pytest.mark.parametrize(
    "low,high", [(True, True), (7.0, 7.0), ("7", "7"), (2**31, 2**31), (7, True), (None, None), ([], [])]
)
def test_nonsense_is_not_believed(topic, low, high):
    run = publish(topic, {"sticky_key_hash": 7})
    file = TableLog(topic.path).file(run.ledger_id)
    *others, add = map(json.loads, file.read_text().splitlines())
    statistics = json.loads(add["add"]["stats"])
    statistics["minValues"]["sticky_key_hash"], statistics["maxValues"]["sticky_key_hash"] = low, high
    add["add"]["stats"] = json.dumps(statistics)
    file.write_text("\n".join(map(json.dumps, [*others, add])) + "\n")
    assert said(topic, run) == [None]


def test_a_file_that_is_lost_or_another_is_opened(topic):
    lost, other = (publish(topic, {"sticky_key_hash": at, "uuid": "u"}) for at in (1, 2))
    (topic.path / lost.path).unlink()
    rows = pq.ParquetFile(topic.path / other.path).read()
    pq.write_table(rows.set_column(0, "uuid", pa.array(["v"])), topic.path / other.path)
    assert said(topic, lost, other) == [None, None]


def test_each_row_says_its_own_in_order_whether_its_commit_does_or_its_file(topic, monkeypatch):
    opened, there = [], entries.EntryReader.there

    def reading(self, table, run, *arguments, **options):
        opened.append(run.ledger_id)
        return there(self, table, run, *arguments, **options)

    monkeypatch.setattr(entries.EntryReader, "there", reading)
    runs, end = [], 0
    for said_here in ([1], [2, 3], [4], [5] * 3, [6] * (MOST_ENTRIES + 1), [7]):
        run = publish(topic, *[{"sticky_key_hash": hash_} for hash_ in said_here])
        runs.append(run._replace(first_position=end))
        end += run.entries
    found = read_slice(topic.path, runs, ["sticky_key_hash"])
    assert found["position"].to_pylist() == list(range(end))
    assert found["sticky_key_hash"].to_pylist() == [1, 2, 3, 4, 5, 5, 5, *[6] * (MOST_ENTRIES + 1), 7]
    assert sorted(opened) == [runs[1].ledger_id, runs[4].ledger_id]


def test_what_was_deleted_or_rewritten_since_is_asked_of_the_table(topic):
    deleted, changed, left = (publish(topic, {"sticky_key_hash": at, "chunk_id": at}) for at in (1, 2, 3))
    runs = [run._replace(first_position=at) for at, run in enumerate((deleted, changed, left))]
    table = DeltaTable(str(topic.path))
    table.delete("chunk_id = 1")
    table.update(updates={"sticky_key_hash": "9"}, predicate="chunk_id = 2")
    found = read_slice(topic.path, runs, ["sticky_key_hash"])
    assert found["sticky_key_hash"].to_pylist() == [None, 9, 3]
    published = read_slice(topic.path, runs, ["sticky_key_hash"], as_published=True)
    assert published["sticky_key_hash"].to_pylist() == [1, 2, 3]


def test_the_least_instant_is_said_of_every_file(topic):
    late = NOON + timedelta(microseconds=1_500)
    runs = [
        publish(topic, {"deliver_at_time": late}, {"deliver_at_time": NOON + timedelta(hours=1)}),
        publish(topic, {}),
    ]
    assert lower_bounds(topic.path, runs, "deliver_at_time") == [NOON + timedelta(milliseconds=1), None]
