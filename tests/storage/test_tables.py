"""Tables without a JVM: what is committed is a Delta table like any other, and a fence holds."""

import json
import threading
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_spark.errors import BrokerFenced, CorruptState, NewerLayout, NotARoot
from pulsar_spark.storage.cursor_ledger.committed_rounds import rows_of
from pulsar_spark.storage.delta import checkpoints, data_files
from pulsar_spark.storage.delta.data_files import read_file
from pulsar_spark.storage.delta.definitions import create_table, read_definition
from pulsar_spark.storage.delta.file_statistics import statistics
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.table_specs import CURSOR_LEDGER, LEDGERS, MESSAGES, REQUESTS

NOON = datetime(2024, 5, 17, 12, 0, 0, 123_456, tzinfo=timezone.utc)


def message(entry_id: int, partition: int = -1, **columns) -> dict:
    return dict(
        dict(
            publish_id="0" * 32,
            entry_id=entry_id,
            batch_size=1,
            partition=partition,
            payload=b"x",
            publish_time=NOON,
            properties={"a": "b"},
        ),
        **columns,
    )


@pytest.mark.local_disk
def test_a_table_on_a_full_disk_is_refused_in_the_words_of_the_system_and_leaves_nothing(tmp_path, monkeypatch):
    coloured = "Generic LocalFileSystem error\n \x1b[31m\u21b3\x1b[0m No space left on device (os error 28)\n"

    def full(*_, **__):
        raise OSError(coloured)

    monkeypatch.setattr(DeltaTable, "create", full)
    with pytest.raises(OSError) as refused:
        create_table(tmp_path / "t", REQUESTS)
    assert str(refused.value) == f"[Errno 28] No space left on device: '{tmp_path / 't'}'"
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    assert create_table(tmp_path / "t", REQUESTS)


def test_deltalake_reads_what_is_appended(tmp_path):
    create_table(tmp_path / "t", MESSAGES, {"topic": "t", "partitions": 2}, partition_by=("partition",))
    table = AppendTable(tmp_path / "t")
    rows = [message(0, 0, partition_key="k" * 300), message(1, 1, event_time=NOON), message(2, 0)]
    assert [table.append(MESSAGES.rows(rows[:2])), table.append(MESSAGES.rows(rows[2:]))] == [1, 2]
    delta = DeltaTable(str(tmp_path / "t"))
    found = dataset_of(delta).to_table().select(MESSAGES.schema.names).sort_by("entry_id").cast(MESSAGES.schema)
    assert found.to_pylist() == MESSAGES.rows(rows).to_pylist()
    assert dataset_of(delta).to_table(filter=pc.field("partition_key") == "k" * 300).num_rows == 1


def test_a_round_s_file_has_no_column_of_which_all_rows_are_null(tmp_path):
    """Whoever reads it finds the nulls all the same, of a whole file or of some columns, by this package or another."""
    create_table(tmp_path / "t", CURSOR_LEDGER)
    table = AppendTable(tmp_path / "t")
    rounds = [
        CURSOR_LEDGER.rows([dict(round=number, kind="topic", topic=topic) for topic in ("t", None)])
        for number in (1, 2)
    ]
    for version, rows in enumerate(rounds):
        assert table.append_fenced(rows, version) == version + 1
    delta, commits = DeltaTable(str(tmp_path / "t")), list(TableLog(tmp_path / "t").commits(0))
    for commit, rows in zip(commits, rounds):
        (file,) = commit.added
        assert set(pq.read_schema(tmp_path / "t" / file.path).names) == {"round", "kind", "topic"}
        assert file.rows == 2 and rows_of(tmp_path / "t", commit, None) == rows
        assert rows_of(tmp_path / "t", commit, {"topic"}, ["kind", "consumer_id"]) == rows.select(
            ["kind", "consumer_id"]
        )
        assert read_file(tmp_path / "t", file, CURSOR_LEDGER.schema, ["consumer_id"]).num_rows == 2
    found = dataset_of(delta).to_table().select(CURSOR_LEDGER.schema.names).sort_by("round").cast(CURSOR_LEDGER.schema)
    assert found.to_pylist() == pa.concat_tables(rounds).to_pylist()
    assert dataset_of(delta).to_table(filter=pc.field("consumer_id").is_null()).num_rows == 4


def test_statistics_enclose_every_row():
    rows = MESSAGES.rows([message(5, publish_time=NOON), message(7, publish_time=NOON, partition_key="z" * 400)])
    found = statistics(rows)
    assert (found["numRecords"], found["minValues"]["entry_id"], found["maxValues"]["entry_id"]) == (2, 5, 7)
    assert (found["minValues"]["publish_time"], found["maxValues"]["publish_time"]) == (
        "2024-05-17T12:00:00.123Z",
        "2024-05-17T12:00:00.124Z",
    )
    assert found["minValues"]["partition_key"] <= "z" * 400 <= found["maxValues"]["partition_key"]
    assert (found["nullCount"]["partition_key"], found["nullCount"]["uuid"]) == (1, 2)
    assert "properties" not in found["nullCount"]


def test_instants_beyond_pythons_calendar_are_stored_and_bounded_by_its_end(tmp_path):
    beyond = [-(1 << 62), 0, (1 << 63) - 1]
    rows = MESSAGES.rows([{"event_time": instant} for instant in beyond])
    found = statistics(rows)
    assert (found["minValues"]["event_time"], found["maxValues"]["event_time"]) == (
        "0001-01-01T00:00:00.000Z",
        "9999-12-31T23:59:59.999Z",
    )
    create_table(tmp_path / "t", MESSAGES)
    AppendTable(tmp_path / "t").append(rows)
    assert dataset_of(tmp_path / "t").to_table()["event_time"].cast(pa.int64()).to_pylist() == beyond


def test_many_rows_that_agree_are_what_each_is_by_itself():
    same = message(7, event_time=NOON, partition_key=None, sequence_id=0)
    assert MESSAGES.rows([same] * 2000).to_pylist() == MESSAGES.rows([same]).to_pylist() * 2000
    other = same | {"properties": {}, "partition_key": "k", "sequence_id": None}
    rows = [same] * 1999 + [other]
    assert MESSAGES.rows(rows).to_pylist() == [MESSAGES.rows([row]).to_pylist()[0] for row in rows]


def test_rows_are_found_by_a_filter_on_a_text_longer_than_statistics_keep(tmp_path):
    create_table(tmp_path / "t", LEDGERS)
    AppendTable(tmp_path / "t").append(
        LEDGERS.rows([dict(topic="t" * 500, topic_id="x" * 36, partition=-1, ledger_id=1)])
    )
    assert dataset_of(tmp_path / "t").to_table(filter=pc.field("topic") == "t" * 500).num_rows == 1


def test_a_fenced_append_commits_behind_the_version_expected_or_nothing(tmp_path):
    create_table(tmp_path / "t", REQUESTS)
    first, second = AppendTable(tmp_path / "t"), AppendTable(tmp_path / "t")
    row = REQUESTS.rows([dict(request_id="r")])
    assert first.append_fenced(row, 0) == 1
    with pytest.raises(BrokerFenced, match="another broker"):
        second.append_fenced(row, 0)
    DeltaTable(str(tmp_path / "t")).optimize.compact()
    second.append(row)
    DeltaTable(str(tmp_path / "t")).optimize.compact()
    assert first.append_fenced(row, 2) == 4, "a commit that changes no data fences nobody"


def test_files_written_before_a_fenced_append_are_in_its_commit_or_gone(tmp_path):
    create_table(tmp_path / "t", REQUESTS)
    first, second = AppendTable(tmp_path / "t"), AppendTable(tmp_path / "t")
    row = REQUESTS.rows([dict(request_id="r")])
    with first.writing(row) as files, second.writing(row) as late:
        pass
    assert first.append_fenced(row, 0, files=files.result()) == 1
    with pytest.raises(BrokerFenced):
        second.append_fenced(row, 0, files=late.result())
    with pytest.raises(ZeroDivisionError), second.writing(row):
        raise ZeroDivisionError
    assert [path.name for path in (tmp_path / "t").glob("*.parquet")] == [each["path"] for each in files.result()]
    assert dataset_of(tmp_path / "t").to_table(columns=["request_id"]).to_pylist() == [{"request_id": "r"}]


def test_an_append_once_is_there_once(tmp_path):
    create_table(tmp_path / "t", REQUESTS)
    row = REQUESTS.rows([dict(request_id="r")])
    assert AppendTable(tmp_path / "t").append_once(row, "app", 3) == 1
    assert AppendTable(tmp_path / "t").append_once(row, "app", 3) is None
    assert AppendTable(tmp_path / "t").append_once(row, "app", 2) is None
    assert AppendTable(tmp_path / "t").append_once(row, "other", 2) == 2
    assert dataset_of(tmp_path / "t").to_table().num_rows == 2


def test_writers_of_both_kinds_side_by_side_lose_nothing(tmp_path):
    create_table(tmp_path / "t", REQUESTS)

    def append(writer: int) -> None:
        table = AppendTable(tmp_path / "t")
        for number in range(10):
            rows = REQUESTS.rows([dict(request_id=f"{writer}-{number}")])
            write_deltalake(str(tmp_path / "t"), rows, mode="append") if writer == 0 else table.append(rows)

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    found = dataset_of(tmp_path / "t").to_table()["request_id"].to_pylist()
    assert sorted(found) == sorted(f"{writer}-{number}" for writer in range(4) for number in range(10))


def test_a_checkpoint_is_made_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 3)
    create_table(tmp_path / "t", REQUESTS)
    table = AppendTable(tmp_path / "t")
    for number in range(4):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
    for thread in threading.enumerate():
        if thread.name.startswith("checkpoint"):
            thread.join()
    assert json.loads((tmp_path / "t/_delta_log/_last_checkpoint").read_text())["version"] >= 3
    assert dataset_of(tmp_path / "t").to_table().num_rows == 4


def test_row_groups_hold_so_much_payload_at_most(tmp_path, monkeypatch):
    """One that has more has a group of its own; what lies in it is as it was given."""
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 1000)
    create_table(tmp_path / "t", MESSAGES, {"topic": "t", "partitions": 0})
    payloads = [b"x" * size for size in (10, 500, 490, 1, 3000, 600, 600, 0)] + [None]
    rows = MESSAGES.rows([message(number, payload=payload) for number, payload in enumerate(payloads)])
    AppendTable(tmp_path / "t").append(rows)
    (path,) = (tmp_path / "t").glob("*.parquet")
    footer = pq.read_metadata(path)
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == [3, 1, 1, 1, 3]
    assert read_file(tmp_path / "t", path.name, MESSAGES.schema).equals(rows)


def test_a_file_read_for_a_column_it_has_not_gives_nulls(tmp_path):
    create_table(tmp_path / "t", REQUESTS)
    write_deltalake(str(tmp_path / "t"), pa.table({"request_id": ["r"]}), mode="append", schema_mode="merge")
    file = TableLog(tmp_path / "t").commit(1).added[0]
    assert read_file(tmp_path / "t", file, REQUESTS.schema, ["request_id", "topic"]).to_pylist() == [
        {"request_id": "r", "topic": None}
    ]


def test_tables_of_another_make_of_a_newer_release_or_half_written_are_refused(tmp_path):
    write_deltalake(str(tmp_path / "foreign"), pa.table({"a": [1]}))
    with pytest.raises(NotARoot, match="another root"):
        read_definition(tmp_path / "foreign")
    DeltaTable.create(
        str(tmp_path / "newer"),
        REQUESTS.schema,
        description=json.dumps({"format": "pulsar_spark", "table": "requests", "layout_version": 99}),
    )
    with pytest.raises(NewerLayout, match="layout 99.*newer pulsar_spark"):
        read_definition(tmp_path / "newer")
    (tmp_path / "half/_delta_log").mkdir(parents=True)
    (tmp_path / "half/_delta_log" / f"{0:020d}.json").write_text('{"metaData":')
    with pytest.raises(CorruptState, match="restore it or delete"):
        read_definition(tmp_path / "half")
